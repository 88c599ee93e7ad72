"""Held calls, whole: what they share, what they survive, and what they leave behind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import msgspec
import pytest

from fmsg.errors import Forbidden, HostFailed, HostUnreachable, Throttled, Unauthorized
from ledger.memory import MemoryStore
from ledger.values import START, Arrival, LedgerLimits
from mcp_front.waiting.call import END_S
from mcp_front.waiting.request import WaitOutcome
from mcp_front.waiting.results import HOST_AWAY
from telemetry.metrics import WAITS_HELD
from tests.mcp_front.waiting.virtual import run, wall_s
from tests.mcp_front.waiting.world import ANN, BEN, ME, World, ids


async def live() -> World:
    """A world with one message, 4, and a live feed."""
    world = World()
    await world.begin_ledger()
    await world.feed_goes_live()
    await world.arrive(4)
    await asyncio.sleep(0.01)  # in the same millisecond it might be younger than a call
    return world


def held() -> float:
    """What the gauge of held waits says."""
    return float(WAITS_HELD._value.get())


async def ends(call: asyncio.Task[WaitOutcome]) -> float:
    """How long a call takes to end, in seconds."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await asyncio.wait([call])
    return loop.time() - began_s


def test_fifty_calls_of_one_caller_ask_the_host_once() -> None:
    """No feed: fifty waits poll together, as often as one would."""

    async def scenario() -> None:
        world = World()
        await world.arrive(4, push=False)
        await world.wait(after_id=4, timeout_s=0.0)
        world.host.asked.clear()
        calls = [asyncio.create_task(world.wait(after_id=4, timeout_s=60.0)) for _ in range(50)]
        await asyncio.sleep(31.0)
        assert 8 <= world.host.asked["list_received"] <= 14
        await world.arrive(5, push=False)
        outcomes = [await call for call in calls]
        assert {tuple(ids(outcome.ids)) for outcome in outcomes} == {(5,)}
        assert {outcome.transport for outcome in outcomes} == {"poll"}
        assert sum(outcome.already_returned == frozenset() for outcome in outcomes) == 50

    run(scenario())


def test_a_live_feed_saves_every_request_to_the_host() -> None:
    """With a feed, a wait asks the host for nothing at all."""

    async def scenario() -> None:
        world = await live()
        world.host.asked.clear()
        assert (await world.wait(after_id=4, timeout_s=100.0)).status == "timeout"
        assert not world.host.asked
        await world.close()

    run(scenario())


def test_a_cancelled_call_lets_go_of_everything_at_once() -> None:
    """The client went away: no listener, no task and no count stays behind."""

    async def scenario() -> None:
        world = await live()
        before = held()
        calls = [asyncio.create_task(world.wait(after_id=4, timeout_s=200.0)) for _ in range(5)]
        calls.append(asyncio.create_task(world.wait(subscription="s", timeout_s=200.0)))
        await asyncio.sleep(1.0)
        assert held() == before + 6
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert held() == before
        assert world.waiting.held == 0
        assert len(world.store.notifications._listeners) == 0
        await world.close()

    run(scenario())


def test_a_call_cancelled_in_the_middle_of_a_look_leaves_no_look_behind() -> None:
    """The client goes while the host is being asked: the request is cancelled with the last that wanted it."""

    async def scenario() -> None:
        world = World()
        world.host.latency_s = 5.0
        call = asyncio.create_task(world.wait(timeout_s=60.0))
        await asyncio.sleep(1.0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    run(scenario())


def test_a_drain_answers_every_held_call_at_once() -> None:
    """The process is told to end: timeouts with good positions, within an instant."""

    async def scenario() -> None:
        world = await live()
        drain = asyncio.Event()
        request = world.request(after_id=4, timeout_s=200.0)
        calls = [asyncio.create_task(world.waiting.wait(world.caller, request, drain=drain)) for _ in range(20)]
        await asyncio.sleep(7.0)
        drain.set()
        assert await ends(calls[-1]) < 0.1
        assert {(call.result().status, call.result().after_id) for call in calls} == {("timeout", 4)}
        await world.close()

    run(scenario())


def test_a_drain_returns_a_batch_whose_window_is_open() -> None:
    """A message is there and its settle window is not over: it is returned rather than left."""

    async def scenario() -> None:
        world = await live()
        drain = asyncio.Event()
        call = asyncio.create_task(world.waiting.wait(world.caller, world.request(after_id=4), drain=drain))
        await asyncio.sleep(1.0)
        await world.arrive(5)
        await asyncio.sleep(1.0)
        drain.set()
        assert ids((await call).ids) == [5]
        await world.close()

    run(scenario())


def test_progress_is_told_every_fifteen_seconds() -> None:
    """The client asked for progress: it hears of a long wait four times a minute."""

    async def scenario() -> None:
        world = await live()
        told: list[float] = []

        async def progress(waited_s: float) -> None:
            told.append(round(waited_s))

        await world.waiting.wait(world.caller, world.request(after_id=4, timeout_s=61.0), progress=progress)
        assert told == [15, 30, 45, 60]
        await world.close()

    run(scenario())


def test_a_lost_notification_costs_seconds_not_the_message() -> None:
    """The notification was lost: the safety re-read finds the message."""

    async def scenario() -> None:
        world = await live()
        world.store.notifications.notify = lambda caller: None  # type: ignore[method-assign]
        call = asyncio.create_task(world.wait(after_id=4, timeout_s=60.0))
        await asyncio.sleep(1.0)
        await world.arrive(5)
        outcome = await call
        assert ids(outcome.ids) == [5]
        assert wall_s() - outcome.ids[0].arrived_at_s < 25.0
        await world.close()

    run(scenario())


def test_a_dead_daemon_is_noticed_and_replaced_by_polling() -> None:
    """The daemon was killed: its heartbeat runs out, the wait polls and says so."""

    async def scenario() -> None:
        world = await live()
        call = asyncio.create_task(world.wait(after_id=4, timeout_s=60.0))
        await asyncio.sleep(1.0)
        await world.daemon_dies()
        await world.arrive(5, push=False)
        outcome = await call
        assert (ids(outcome.ids), outcome.transport) == ([5], "poll")
        assert asyncio.get_running_loop().time() < 25.0
        await world.close()

    run(scenario())


def test_a_feed_that_broke_is_not_believed() -> None:
    """The daemon lives, its socket does not: the wait polls."""

    async def scenario() -> None:
        world = await live()
        await world.feed_breaks()
        await asyncio.sleep(3.0)
        call = asyncio.create_task(world.wait(after_id=4, timeout_s=30.0))
        await asyncio.sleep(1.0)
        await world.arrive(5, push=False)
        outcome = await call
        assert (ids(outcome.ids), outcome.transport) == ([5], "poll")
        await world.close()

    run(scenario())


@pytest.mark.parametrize(
    "error",
    [
        HostUnreachable("no answer"),
        HostFailed(503, "identity service unavailable"),
        Throttled(429, "slow", retry_after_s=2),
    ],
)
def test_a_host_that_is_down_is_waited_out(error: Exception) -> None:
    """The host answers nothing for a while: the call holds, then finds what came meanwhile."""

    async def scenario() -> None:
        world = World()
        await world.arrive(4, push=False)
        await world.begin_ledger()
        call = asyncio.create_task(world.wait(after_id=4, timeout_s=120.0))
        await asyncio.sleep(1.0)
        world.host.error = error  # type: ignore[assignment]
        await asyncio.sleep(30.0)
        await world.arrive(5, push=False)
        world.host.error = None
        assert ids((await call).ids) == [5]

    run(scenario())


def test_a_host_that_stays_down_ends_in_a_timeout_with_a_good_position() -> None:
    """Down until the limit: a normal result, the position as it was, and a note; not hammered meanwhile."""

    async def scenario() -> None:
        world = World()
        await world.arrive(4, push=False)
        await world.begin_ledger()
        world.host.error = HostUnreachable("no answer")
        world.host.asked.clear()
        outcome = await world.wait(after_id=4, timeout_s=60.0)
        assert (outcome.status, outcome.after_id, outcome.notes) == ("timeout", 4, (HOST_AWAY,))
        assert world.host.asked.total() < 12

    run(scenario())


def test_a_first_call_while_the_host_is_down_has_no_position_to_give() -> None:
    """No after_id, no ledger, no host: an error that says so, rather than a position that would lose or repeat."""

    async def scenario() -> None:
        world = World()
        world.host.error = HostUnreachable("no answer from the host")
        with pytest.raises(HostUnreachable, match="no answer from the host"):
            await world.wait(timeout_s=5.0)

    run(scenario())


def test_what_comes_while_the_host_is_down_is_after_the_moment_of_the_call() -> None:
    """The first call came before the outage ended: what was sent during it is returned."""

    async def scenario() -> None:
        world = World()
        await world.arrive(4, push=False)
        await asyncio.sleep(60.0)
        world.host.error = HostUnreachable("no answer")
        call = asyncio.create_task(world.wait(timeout_s=60.0))
        await asyncio.sleep(10.0)
        await world.arrive(5, push=False)
        await asyncio.sleep(3.0)
        world.host.error = None
        assert ids((await call).ids) == [5]

    run(scenario())


@pytest.mark.parametrize("error", [Unauthorized(401, "api key revoked"), Forbidden(403, "not authorised")])
def test_a_revoked_key_ends_the_call(error: Exception) -> None:
    """The key was revoked while the call waited: nothing from the ledger is returned, the host's words are."""

    async def scenario() -> None:
        world = await live()
        call = asyncio.create_task(world.wait(after_id=4, timeout_s=60.0))
        await asyncio.sleep(1.0)
        world.caller.refusal = error  # type: ignore[assignment]
        await world.arrive(5)
        with pytest.raises(type(error), match=str(error)):
            await call
        await world.close()

    run(scenario())


def test_a_key_refused_to_a_poll_ends_only_the_call_it_belongs_to() -> None:
    """Polling with a key that was revoked: that call ends with the host's words."""

    async def scenario() -> None:
        world = World()
        await world.begin_ledger()
        call = asyncio.create_task(world.wait(after_id=0, timeout_s=60.0))
        await asyncio.sleep(1.0)
        world.host.error = Unauthorized(401, "api key revoked")
        with pytest.raises(Unauthorized, match="revoked"):
            await call

    run(scenario())


def test_a_ledger_flushed_under_a_held_call_loses_nothing() -> None:
    """Redis restarted empty: the call finds its place again by its id, and what came meanwhile."""

    async def scenario() -> None:
        world = await live()
        await asyncio.sleep(500.0)
        call = asyncio.create_task(world.wait(after_id=4, timeout_s=60.0))
        await asyncio.sleep(2.0)
        await world.store.ledger.forget(world.key)
        await world.arrive(5, push=False)
        await world.push(world.host.messages[5])
        outcome = await call
        assert (ids(outcome.ids), outcome.already_returned, outcome.after_id) == ([5], frozenset(), 5)
        await world.close()

    run(scenario())


def test_bodies_that_do_not_fit_come_with_the_next_call() -> None:
    """The bound on bytes: the tool takes two of three, the third is not marked as returned and comes next."""

    async def scenario() -> None:
        world = await live()
        for message_id, pid in ((5, None), (6, 5), (7, 5)):
            await world.arrive(message_id, pid=pid)
        asked: list[list[int]] = []

        async def fit(entries: Sequence[Arrival]) -> int:
            asked.append([entry.id for entry in entries])
            return 2

        await asyncio.sleep(10.0)
        first = await world.waiting.wait(world.caller, world.request(after_id=4), fit=fit)
        second = await world.waiting.wait(world.caller, world.request(after_id=first.after_id), fit=fit)
        assert asked == [[5, 6, 7], [7]]
        assert (ids(first.ids), first.after_id, first.pending_count) == ([5, 6], 6, 1)
        assert (ids(second.ids), second.already_returned) == ([7], frozenset())
        await world.close()

    run(scenario())


def test_thread_of_names_a_thread_by_a_message_nobody_may_read() -> None:
    """The root of the thread is invisible to the caller: its id still names the thread."""

    async def scenario() -> None:
        world = await live()
        world.host.put(10, to=("@else@else.test",))
        world.host.hidden.add(10)
        await world.arrive(12, pid=10)
        await world.arrive(13, from_=BEN)
        for named in (10, 12):
            outcome = await world.wait(after_id=4, thread_of=named, settle_s=0.0)
            assert (ids(outcome.ids), outcome.thread_root_id) == ([12], 10)
        await world.close()

    run(scenario())


def test_thread_of_names_a_thread_by_the_callers_own_message() -> None:
    """An agent waits for answers to what it sent."""

    async def scenario() -> None:
        world = await live()
        world.host.put(30, from_=ME, to=(ANN,))
        await world.arrive(31, from_=BEN)
        await world.arrive(32, pid=30)
        outcome = await world.wait(after_id=30, thread_of=30, from_="@Ann@there.test", settle_s=0.0)
        assert (ids(outcome.ids), outcome.skipped) == ([32], ((31, "from_mismatch"),))
        await world.close()

    run(scenario())


def test_a_root_the_feed_could_not_find_is_found_by_the_wait() -> None:
    """A reply recorded without its root: the wait asks the host, records the answer and keeps threads together."""

    async def scenario() -> None:
        world = await live()
        world.host.put(30, from_=ME, to=(ANN,))
        for message_id in (31, 32):
            await world.push(world.host.put(message_id, pid=30), root=0)
        outcome = await world.wait(after_id=4, settle_s=0.0)
        assert (ids(outcome.ids), outcome.thread_root_id) == ([31, 32], 30)
        entries = (await world.store.ledger.read(world.key, START, 9)).entries
        assert [entry.root for entry in entries] == [4, 30, 30]
        await world.close()

    run(scenario())


def test_a_backlog_of_ten_thousand_comes_back_once_each() -> None:
    """An agent was away for ten thousand messages: each comes once, oldest first, at two requests a wait."""

    async def scenario() -> None:
        world = World(store=MemoryStore(limits=LedgerLimits(max_entries=1000), clock=wall_s))
        rng = random.Random(1)
        for number, message_id in enumerate(sorted(rng.sample(range(10, 2_000_000), 10_000))):
            world.host.put(message_id, time_s=wall_s() - 20_000.0 + number)
        everything = sorted(world.host.messages)
        received: list[int] = []
        after_id = everything[0]
        waits = 0
        while len(received) < 400:
            outcome = await world.wait(after_id=after_id, settle_s=0.0)
            assert outcome.status == "message"
            received.extend(ids(outcome.ids))
            after_id = outcome.after_id
            waits += 1
        assert received == everything[1 : len(received) + 1]
        assert world.host.asked["list_received"] <= 2 * waits + 30

    run(scenario())


def test_a_backlog_in_one_thread_comes_in_bounded_batches_and_reaches_the_ledger() -> None:
    """Three thousand messages of a thread, of which the ledger took over the newest: whole batches, no seam."""

    async def scenario() -> None:
        world = World()
        for message_id in range(1, 3_001):
            world.host.put(message_id, pid=None if message_id == 1 else 1, time_s=wall_s() - 9_000.0 + message_id)
        received: list[int] = []
        after_id = 0
        while True:
            outcome = await world.wait(after_id=after_id, settle_s=0.0, timeout_s=1.0)
            if outcome.status == "timeout":
                break
            assert len(outcome.ids) <= 100
            received.extend(ids(outcome.ids))
            after_id = outcome.after_id
        assert received == list(range(1, 3_001))
        assert world.host.asked["list_received"] <= 120

    run(scenario())


def test_a_body_is_fetched_while_the_position_is_recorded() -> None:
    """One message: neither waits for the other. Where the body cannot be had at first, the same call tries again."""

    async def scenario() -> None:
        world = World()
        await world.arrive(4)
        await world.feed_goes_live()
        await world.arrive(5)
        recorded: list[bool] = []

        async def fit(entries: Sequence[Arrival]) -> int:
            await asyncio.sleep(0.1)
            recorded.append(5 in (await world.store.ledger.find(world.key, [5])).handed_out)
            if len(recorded) == 1:
                raise HostUnreachable("no answer")
            return len(entries)

        request = world.request(after_id=4, settle_s=0.0, timeout_s=60.0)
        outcome = await world.waiting.wait(world.caller, request, fit=fit)
        assert (ids(outcome.ids), outcome.after_id, outcome.already_returned) == ([5], 5, frozenset())
        assert recorded == [True, True]
        await world.close()

    run(scenario())


@pytest.mark.parametrize("timeout_s", [20.0, 50.0])
def test_a_host_that_takes_its_time_to_fail_makes_no_call_late(timeout_s: float) -> None:
    """Each request is answered 503 after five seconds, the last one begun just before the limit."""

    async def scenario() -> None:
        world = await live()
        await world.wait(after_id=4, timeout_s=0.0)
        await world.feed_breaks()
        world.host.latency_s = 5.0
        world.host.error = HostFailed(503, "database away")
        began_s = asyncio.get_running_loop().time()
        outcome = await world.wait(after_id=4, timeout_s=timeout_s)
        assert asyncio.get_running_loop().time() - began_s <= timeout_s + END_S
        assert (outcome.status, outcome.after_id, outcome.notes) == ("timeout", 4, (HOST_AWAY,))
        await world.close()

    run(scenario())


def test_a_body_that_takes_its_time_makes_no_call_late_and_comes_with_the_next() -> None:
    """The message came just before the limit, and its body takes five seconds."""

    async def scenario() -> None:
        world = await live()
        took_s = 5.0

        async def fit(entries: Sequence[Arrival]) -> int:
            await asyncio.sleep(took_s)
            return len(entries)

        request = world.request(after_id=4, timeout_s=20.0, settle_s=0.0)
        call = asyncio.create_task(world.waiting.wait(world.caller, request, fit=fit))
        await asyncio.sleep(19.0)
        await world.arrive(5)
        assert await ends(call) <= 1.0 + END_S
        assert (call.result().status, call.result().after_id) == ("timeout", 4)
        again = await world.waiting.wait(world.caller, request, fit=fit)
        assert (ids(again.ids), again.already_returned) == ([5], frozenset())
        await world.close()

    run(scenario())


def test_a_wait_from_now_says_what_it_leaves_unread() -> None:
    """Two unread messages, one that was read, a draft and a reaction: two are older. A renewed wait does not ask."""

    async def scenario() -> None:
        world = World()
        for message_id in (1, 2, 3):
            world.host.put(message_id, from_=BEN if message_id == 2 else ANN)
        world.host.messages[3] = msgspec.structs.replace(world.host.messages[3], read=True)
        world.host.put(6, draft=True)
        world.host.put(7, reaction="👍")
        await world.begin_ledger()
        await world.feed_goes_live()
        await asyncio.sleep(60.0)
        first = await world.wait(timeout_s=1.0)
        assert (first.older_unread, first.older_unread_more, first.after_id) == (2, False, 7)
        assert (await world.wait(timeout_s=1.0, from_=BEN)).older_unread == 1
        assert (await world.wait(timeout_s=1.0, subscription="s")).older_unread == 2
        world.host.asked.clear()
        assert (await world.wait(after_id=first.after_id, timeout_s=1.0)).older_unread == 0
        assert (await world.wait(subscription="s", timeout_s=1.0)).older_unread == 0
        assert world.host.asked["list_received"] == 0
        await world.close()

    run(scenario())


def test_a_new_callers_first_wait_begins_the_ledger_and_counts_what_is_older_with_one_page() -> None:
    async def scenario() -> None:
        world = World()
        for message_id in range(1, 101):
            world.host.put(message_id)
        first = await world.wait(timeout_s=1.0)
        assert (first.older_unread, first.older_unread_more, first.after_id) == (80, True, 100)
        assert world.host.asked["list_received"] == 1
        await world.close()

    run(scenario())


def test_catching_up_with_old_threads_asks_for_each_root_once() -> None:
    """Sixty threads, five hundred messages in turn, from somewhere in the middle on: one search for each thread."""

    async def scenario() -> None:
        world = World()
        for message_id in range(1, 501):
            world.host.put(message_id, pid=message_id - 60 if message_id > 60 else None)
        await world.feed_goes_live()
        await asyncio.sleep(60.0)
        world.host.asked.clear()
        position, calls, got = 200, 0, set[int]()
        while len(got) < 300:
            outcome = await world.wait(after_id=position, timeout_s=1.0, settle_s=0.0)
            assert outcome.status == "message"
            got |= set(ids(outcome.ids))
            position, calls = outcome.after_id, calls + 1
        assert got == set(range(201, 501))
        asked = world.host.asked
        assert asked["thread"] + asked["message"] <= 4 * 60, asked
        assert asked["list_received"] <= calls + 3
        assert asked["list_sent"] <= 5
        await world.close()

    run(scenario())


def test_what_a_filter_passed_over_is_counted_and_can_be_gone_back_to() -> None:
    """Three of another sender and one without reply pass; from where the call began an unfiltered wait brings them."""

    async def scenario() -> None:
        world = await live()
        for message_id in (5, 6, 7):
            await world.arrive(message_id, from_=BEN)
        await world.push(world.host.put(8, no_reply=True))
        outcome = await world.wait(after_id=4, from_=ANN, timeout_s=1.0)
        assert outcome.skipped_counts == {"from_mismatch": 3, "no_reply": 1}
        assert (outcome.after_id, outcome.began_id) == (8, 4)
        came: list[int] = []
        after_id = outcome.began_id
        for _ in range(3):
            again = await world.wait(after_id=after_id, settle_s=0.0)
            came += ids(again.ids)
            after_id = again.after_id
        assert came == [5, 6, 7]
        await world.close()

    run(scenario())


def test_a_feed_that_asks_for_another_token_than_it_has_is_given_a_fresh_one() -> None:
    """Twice: the token left is the one that the feed was refused with, so that leaving it again helps nobody."""

    async def scenario() -> None:
        world = await live()
        call = asyncio.create_task(world.wait(after_id=4, timeout_s=60.0))
        await asyncio.sleep(1.0)
        for number in (2, 3):
            world.caller.next_token = f"t{number}"
            await world.feed_asks_for_a_token()
            await asyncio.sleep(25.0)
            activation = await world.store.activations.get(world.key)
            assert activation is not None
            assert activation.token == f"t{number}"
        await world.arrive(5)
        await call
        await world.close()

    run(scenario())
