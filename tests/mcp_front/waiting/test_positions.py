"""From an id to the place where a wait goes on, in every case an agent can come with."""

from __future__ import annotations

import asyncio

import pytest

from ledger.memory import MemoryStore
from ledger.values import CallerKey, LedgerLimits, Slice
from mcp_front.waiting.request import UnknownPosition, UnknownThread
from tests.mcp_front.waiting.virtual import run, wall_s
from tests.mcp_front.waiting.world import ANN, BEN, ME, SOMEBODY, World, ids


async def cold(*messages: tuple[int, float], max_entries: int = 1000) -> World:
    """A world without a ledger; messages are (id, seconds ago)."""
    world = World(store=MemoryStore(limits=LedgerLimits(max_entries=max_entries), clock=wall_s))
    for message_id, ago_s in messages:
        world.host.put(message_id, time_s=wall_s() - ago_s)
    return world


async def everything(world: World, after_id: int) -> list[int]:
    """What an agent gets that goes on from a position until nothing comes; marked messages are left out."""
    received: list[int] = []
    while True:
        outcome = await world.wait(after_id=after_id, settle_s=0.0, timeout_s=0.0)
        if outcome.status == "timeout":
            return received
        received.extend(entry.id for entry in outcome.ids if entry.id not in outcome.already_returned)
        after_id = outcome.after_id


def test_an_id_that_is_neither_received_nor_sent_is_an_error_that_says_how_to_go_on() -> None:
    """An agent passes something it made up, or somebody else's message: the error names the ways out."""

    async def scenario() -> None:
        world = await cold((4, 50.0))
        world.host.put(9, to=(SOMEBODY,))
        world.host.hidden.add(9)
        for nonsense in (77, 9):
            with pytest.raises(UnknownPosition, match='pass "0" to get everything from the beginning'):
                await world.wait(after_id=nonsense)

    run(scenario())


def test_a_draft_is_no_position() -> None:
    """An agent passes the id of a draft it has not sent: nothing can have arrived after it."""

    async def scenario() -> None:
        world = await cold((4, 50.0))
        world.host.put(9, from_=ME, to=(ANN,), draft=True)
        with pytest.raises(UnknownPosition, match="is a draft"):
            await world.wait(after_id=9)

    run(scenario())


def test_a_thread_the_host_does_not_know_is_an_error() -> None:
    """thread_of names nothing: an error rather than a wait for ever."""

    async def scenario() -> None:
        world = await cold((4, 50.0))
        with pytest.raises(UnknownThread, match="knows no message 77"):
            await world.wait(after_id=4, thread_of=77)

    run(scenario())


def test_after_zero_brings_what_is_older_than_the_ledger_too() -> None:
    """Two hundred messages, of which a new ledger takes over sixty-four: all of them, in order, once."""

    async def scenario() -> None:
        world = await cold(*((k, 1000.0 - k) for k in range(1, 201)))
        assert await everything(world, 0) == list(range(1, 201))

    run(scenario())


def test_an_old_id_goes_on_from_the_hosts_list() -> None:
    """An agent comes back with a position from before the ledger: what came after it, nothing from before."""

    async def scenario() -> None:
        world = await cold(*((k, 1000.0 - k) for k in range(1, 201)))
        assert await everything(world, 50) == list(range(51, 201))

    run(scenario())


def test_an_old_position_that_is_no_message_of_the_list_any_more_is_found_all_the_same() -> None:
    """The agent's own old message as position, with a list full of others' around it."""

    async def scenario() -> None:
        world = await cold(*((2 * k, 1000.0 - k) for k in range(1, 201)))
        world.host.put(101, from_=ME, to=(ANN,), time_s=wall_s() - 949.5)
        assert await everything(world, 101) == list(range(102, 401, 2))

    run(scenario())


def test_a_late_draft_from_before_the_ledger_is_not_lost_to_an_old_position() -> None:
    """The message was made before the position and sent after it, and no ledger saw it: it comes, and only once."""

    async def scenario() -> None:
        world = await cold(*((k, 2000.0 - k) for k in range(1, 200) if k != 40))
        world.host.put(40, from_=BEN, time_s=wall_s() - 1890.0)
        assert sorted(await everything(world, 100)) == [40, *range(101, 200)]
        assert await everything(world, 120) == list(range(121, 200))

    run(scenario())


def test_a_position_trimmed_away_goes_on_without_a_seam() -> None:
    """The ledger holds ten entries and forty came: the rest is fetched from the host, in between nothing is lost."""

    async def scenario() -> None:
        world = await cold((4, 500.0), max_entries=10)
        assert (await world.wait(after_id=0, settle_s=0.0)).after_id == 4
        for message_id in range(10, 50):
            await world.arrive(message_id)
        assert await everything(world, 4) == list(range(10, 50))

    run(scenario())


def test_what_was_trimmed_comes_in_the_order_it_was_recorded() -> None:
    """Late drafts among what was trimmed: each comes once to an agent that was between them."""

    async def scenario() -> None:
        world = await cold((4, 500.0), max_entries=5)
        await world.wait(after_id=0, settle_s=0.0)
        drafts = [world.host.put(message_id, draft=True).id for message_id in (20, 21)]
        await world.arrive(30)
        await world.push(world.host.send(drafts[0]))
        await asyncio.sleep(1.0)
        seen = await world.wait(after_id=4, settle_s=0.0)
        assert ids(seen.ids) == [30]
        seen = await world.wait(after_id=30, settle_s=0.0)
        assert ids(seen.ids) == [20]
        await world.push(world.host.send(drafts[1]))
        for message_id in range(40, 60):
            await world.arrive(message_id)
        assert await everything(world, seen.after_id) == [21, *range(40, 60)]

    run(scenario())


def test_the_callers_own_message_means_what_arrived_after_it_was_sent() -> None:
    """Warm ledger: only what came after the message was sent is returned, and the host's list is not asked for."""

    async def scenario() -> None:
        world = await cold((4, 500.0))
        await world.begin_ledger()
        await world.feed_goes_live()
        await world.arrive(10)
        await asyncio.sleep(5.0)
        world.host.put(12, from_=ME, to=(ANN,))
        await asyncio.sleep(5.0)
        await world.arrive(14)
        world.host.asked.clear()
        outcome = await world.wait(after_id=12, settle_s=0.0)
        assert ids(outcome.ids) == [14]
        assert world.host.asked == {"message": 1}
        await world.close()

    run(scenario())


def test_a_wait_from_an_own_message_hands_out_a_position_of_its_own() -> None:
    """Nothing came after it yet: the position handed out is a received message, so the next call need not ask."""

    async def scenario() -> None:
        world = await cold((4, 500.0))
        await world.begin_ledger()
        await world.feed_goes_live()
        world.host.put(12, from_=ME, to=(ANN,))
        outcome = await world.wait(after_id=12, timeout_s=1.0)
        assert (outcome.status, outcome.after_id) == ("timeout", 4)
        world.host.asked.clear()
        await world.arrive(14)
        assert ids((await world.wait(after_id=4, settle_s=0.0)).ids) == [14]
        assert not world.host.asked
        await world.close()

    run(scenario())


def test_what_arrived_while_a_draft_lay_comes_again_only_marked() -> None:
    """A large message of ours took a minute to send; what was returned in that minute is marked when it comes again."""

    async def scenario() -> None:
        world = await cold((4, 500.0))
        await world.begin_ledger()
        await world.feed_goes_live()
        world.host.put(12, from_=ME, to=(ANN,), draft=True)
        await asyncio.sleep(20.0)
        await world.arrive(13)
        assert ids((await world.wait(after_id=4, settle_s=0.0)).ids) == [13]
        await asyncio.sleep(20.0)
        world.host.send(12)
        again = await world.wait(after_id=12, settle_s=0.0)
        assert (ids(again.ids), set(again.already_returned)) == ([13], {13})
        await world.close()

    run(scenario())


def test_a_position_of_this_ledger_is_exact_though_ids_say_otherwise() -> None:
    """9 came before 5, a late draft; an agent at 5 does not get 9 again, whatever the ids say."""

    async def scenario() -> None:
        world = await cold((4, 500.0))
        await world.begin_ledger()
        world.host.put(5, draft=True)
        await world.arrive(9)
        await asyncio.sleep(5.0)
        await world.push(world.host.send(5))
        assert await everything(world, 4) == [9, 5]
        assert (await world.wait(after_id=5, timeout_s=0.0)).status == "timeout"

    run(scenario())


def test_a_position_the_ledger_never_handed_out_is_resolved_in_doubt_earlier() -> None:
    """An id from a list: what may have arrived after it comes, although the ledger recorded it before."""

    async def scenario() -> None:
        world = await cold((4, 500.0))
        await world.begin_ledger()
        first = world.host.put(10, time_s=wall_s() - 30.0)
        await world.arrive(12)
        await world.push(first)
        assert await everything(world, 10) == [12]

    run(scenario())


def test_an_id_the_feed_has_not_heard_of_yet() -> None:
    """The event was lost and the agent saw the message in a list: the wait records it and goes on from there."""

    async def scenario() -> None:
        world = await cold((4, 500.0))
        await world.begin_ledger()
        await world.feed_goes_live()
        await world.arrive(10, push=False)
        await world.arrive(11)
        outcome = await world.wait(after_id=10, settle_s=0.0)
        assert ids(outcome.ids) == [11]
        await world.close()

    run(scenario())


def test_from_now_on_a_cold_ledger() -> None:
    """No ledger, no position: what was there before the call stays out, what comes while the host is asked does not."""

    async def scenario() -> None:
        world = await cold((4, 500.0), (5, 3.0))
        world.host.latency_s = 2.0
        call = asyncio.create_task(world.wait(settle_s=0.0, timeout_s=30.0))
        await asyncio.sleep(1.0)
        await world.arrive(7, push=False)
        assert ids((await call).ids) == [7]

    run(scenario())


def test_from_now_on_a_ledger_that_slept() -> None:
    """The feed was off for a while: what came then is old news, what comes from the call on is not."""

    async def scenario() -> None:
        world = await cold((4, 500.0))
        await world.begin_ledger()
        await world.arrive(5, push=False)
        await asyncio.sleep(60.0)
        outcome = await world.wait(timeout_s=1.0)
        assert (outcome.status, outcome.after_id) == ("timeout", 5)

    run(scenario())


def test_from_now_while_the_store_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A feed records a message after the call came in and before its place was found: it came after the call."""

    async def scenario() -> None:
        world = await cold((4, 500.0))
        await world.feed_goes_live()
        read_back = world.store.ledger.read_back
        came: list[int] = []

        async def slowly(caller: CallerKey, limit: int) -> Slice:
            if not came:
                came.append(7)
                await asyncio.sleep(0.01)
                await world.arrive(7)
                await asyncio.sleep(0.01)
            return await read_back(caller, limit)

        monkeypatch.setattr(world.store.ledger, "read_back", slowly)
        outcome = await world.wait(settle_s=0.0, timeout_s=5.0)
        assert came == [7]
        assert ids(outcome.ids) == [7]
        await world.close()

    run(scenario())


def test_from_now_in_an_empty_inbox() -> None:
    """Nothing was ever received: the position is "0", and the first message comes."""

    async def scenario() -> None:
        world = await cold()
        outcome = await world.wait(timeout_s=1.0)
        assert (outcome.status, outcome.after_id) == ("timeout", 0)
        await world.arrive(1, push=False)
        assert ids((await world.wait(after_id=0, settle_s=0.0)).ids) == [1]

    run(scenario())


def test_an_inbox_that_was_always_empty_is_not_asked_for_again_and_again() -> None:
    """An agent waits for its first message in a loop, from "0": its ledger knows that there was nothing before it."""

    async def scenario() -> None:
        world = await cold()
        await world.begin_ledger()
        await world.feed_goes_live()
        listed = world.host.asked["list_received"]
        for _ in range(3):
            outcome = await world.wait(after_id=0, settle_s=0.0, timeout_s=1.0)
            assert (outcome.status, outcome.after_id, outcome.transport) == ("timeout", 0, "websocket")
        assert world.host.asked["list_received"] == listed
        await world.arrive(1)
        assert ids((await world.wait(after_id=0, settle_s=0.0)).ids) == [1]
        await world.close()

    run(scenario())


def test_drafts_addressed_to_the_caller_are_never_marked_nor_lost() -> None:
    """A draft is listed before it is sent: it is no message then, and a new one once it is sent."""

    async def scenario() -> None:
        world = await cold((4, 500.0))
        world.host.put(5, draft=True)
        outcome = await world.wait(after_id=4, timeout_s=1.0)
        assert outcome.status == "timeout"
        await asyncio.sleep(3.0)
        world.host.send(5)
        assert ids((await world.wait(after_id=outcome.after_id, settle_s=0.0)).ids) == [5]

    run(scenario())
