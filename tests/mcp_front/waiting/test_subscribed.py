"""Waits on subscriptions, whole: several consumers, several replicas, things that die."""

from __future__ import annotations

import asyncio

import pytest

from fmsg.errors import HostUnreachable
from ledger.port import LedgerUnavailable
from mcp_front.waiting.request import SubscriptionRefused
from mcp_front.waiting.results import STORE_AWAY
from mcp_front.waiting.subscribed import KIND
from mcp_front.waiting.subscriptions import LEFT_ALONE_S, MAX_SUBSCRIPTIONS
from tests.mcp_front.waiting.virtual import run
from tests.mcp_front.waiting.world import ANN, BEN, World, ids


async def live() -> World:
    """A world with one message, 4, and a live feed."""
    world = World()
    await world.begin_ledger()
    await world.feed_goes_live()
    await world.arrive(4)
    await asyncio.sleep(0.01)  # in the same millisecond it might be younger than a call
    return world


def test_two_waits_on_one_subscription_share_the_work() -> None:
    """Two concurrent waits on two replicas: one gets the batch, the other waits on and gets the next."""

    async def scenario() -> None:
        world = await live()
        other = world.another_front()
        first = asyncio.create_task(world.wait(subscription="s", after_id=4))
        second = asyncio.create_task(world.wait(subscription="s", front=other))
        await asyncio.sleep(1.0)
        await world.arrive(5)
        await asyncio.sleep(4.0)
        assert first.done() + second.done() == 1
        await world.arrive(6, from_=BEN)
        one, two = await first, await second
        assert sorted(ids(one.ids) + ids(two.ids)) == [5, 6]
        assert one.redelivered | two.redelivered == frozenset()
        await world.close()

    run(scenario())


def test_a_result_that_never_reached_its_agent_comes_again_at_once() -> None:
    """The front died with the answer: the same call on another replica gets the same batch, marked redelivered."""

    async def scenario() -> None:
        world = await live()
        await world.wait(subscription="s", timeout_s=0.0)
        await world.arrive(5)
        lost = await world.wait(subscription="s", after_id=4)
        again = await world.wait(subscription="s", after_id=4, front=world.another_front())
        assert (ids(again.ids), again.after_id) == (ids(lost.ids), lost.after_id)
        assert again.redelivered == {5}
        assert (again.thread_root_id, again.reply_target_id) == (5, 5)
        done = await world.wait(subscription="s", after_id=5, timeout_s=1.0)
        assert (done.status, done.after_id) == ("timeout", 5)
        await world.close()

    run(scenario())


def test_a_consumer_that_acknowledges_gets_the_others_work_when_they_do_not() -> None:
    """One consumer died with its batch, the other goes on acknowledging: the batch comes to it after a while."""

    async def scenario() -> None:
        world = await live()
        await world.wait(subscription="s", timeout_s=0.0)
        dead = asyncio.create_task(world.wait(subscription="s", settle_s=0.0))
        alive = asyncio.create_task(world.wait(subscription="s", settle_s=0.0, timeout_s=60.0))
        await asyncio.sleep(1.0)
        await world.arrive(5)
        await dead
        await world.arrive(6)
        mine = await alive
        began_s = asyncio.get_running_loop().time()
        again = await world.wait(subscription="s", after_id=mine.after_id, timeout_s=200.0)
        assert again.redelivered == {5}
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(LEFT_ALONE_S, abs=2.0)
        await world.close()

    run(scenario())


def test_an_id_of_another_kind_acknowledges_nothing_and_says_so() -> None:
    """The agent passes the id of the message it sent: nothing is lost, and a note explains."""

    async def scenario() -> None:
        world = await live()
        await world.wait(subscription="s", timeout_s=0.0)
        await world.arrive(5)
        await world.wait(subscription="s", after_id=4)
        again = await world.wait(subscription="s", after_id=30)
        assert again.redelivered == {5}
        assert any("acknowledges nothing" in note for note in again.notes)
        await world.close()

    run(scenario())


def test_it_begins_where_the_first_call_says() -> None:
    """A new subscription with after_id: from there; without: from now."""

    async def scenario() -> None:
        world = await live()
        assert ids((await world.wait(subscription="all", after_id=0)).ids) == [4]
        assert (await world.wait(subscription="new", timeout_s=1.0)).after_id == 4
        await world.close()

    run(scenario())


def test_its_filters_stay_and_need_not_be_repeated() -> None:
    """Made for one sender: later calls without the filter get that sender's only, with another one an error."""

    async def scenario() -> None:
        world = await live()
        await world.wait(subscription="s", from_=ANN, timeout_s=0.0)
        with pytest.raises(SubscriptionRefused, match="was made with from"):
            await world.wait(subscription="s", from_=BEN)
        await world.arrive(5, from_=BEN)
        await world.arrive(6)
        assert ids((await world.wait(subscription="s")).ids) == [6]
        await world.close()

    run(scenario())


def test_names_and_numbers_are_bounded_and_a_caller_can_clear_up() -> None:
    """Thirty-two subscriptions and no more; listed, deleted, and there is room again."""

    async def scenario() -> None:
        world = await live()
        with pytest.raises(SubscriptionRefused, match="no name for one"):
            await world.wait(subscription="so not")
        for number in range(MAX_SUBSCRIPTIONS):
            await world.wait(subscription=f"s{number:02}", timeout_s=0.0)
        with pytest.raises(SubscriptionRefused, match="one more than the 32"):
            await world.wait(subscription="another")
        listed = await world.waiting.subscriptions(world.key)
        assert [summary.name for summary in listed] == [f"s{number:02}" for number in range(MAX_SUBSCRIPTIONS)]
        assert {(summary.after_id, summary.outstanding) for summary in listed} == {(4, 0)}
        assert await world.waiting.delete_subscription(world.key, "s07")
        assert not await world.waiting.delete_subscription(world.key, "s07")
        assert (await world.wait(subscription="another", timeout_s=0.0)).status == "timeout"
        await world.close()

    run(scenario())


def test_a_subscription_deleted_under_a_waiting_call_ends_it() -> None:
    """Somebody deletes it: the call that waits on it says so when the next message comes."""

    async def scenario() -> None:
        world = await live()
        call = asyncio.create_task(world.wait(subscription="s", settle_s=0.0))
        await asyncio.sleep(1.0)
        await world.waiting.delete_subscription(world.key, "s")
        await world.arrive(5)
        with pytest.raises(SubscriptionRefused, match="was deleted while this call waited"):
            await call
        await world.close()

    run(scenario())


def test_it_survives_a_ledger_that_began_anew() -> None:
    """Redis lost the ledger but not the subscription: the position is found again by its id, nothing comes twice."""

    async def scenario() -> None:
        world = await live()
        await asyncio.sleep(200.0)
        await world.arrive(5)
        first = await world.wait(subscription="s", after_id=4)
        assert ids(first.ids) == [5]
        assert (await world.wait(subscription="s", after_id=5, timeout_s=0.0)).after_id == 5
        await world.store.ledger.forget(world.key)
        await world.arrive(6)
        second = await world.wait(subscription="s", after_id=5)
        assert (ids(second.ids), second.redelivered, second.after_id) == ([6], frozenset(), 6)
        await world.close()

    run(scenario())


def test_an_unacknowledged_result_survives_a_ledger_that_began_anew() -> None:
    """The ledger is gone and the message with it: what was delivered is kept with the subscription."""

    async def scenario() -> None:
        world = await live()
        await world.arrive(5)
        await world.wait(subscription="s", after_id=4)
        await world.store.ledger.forget(world.key)
        again = await world.wait(subscription="s")
        assert ids(again.ids) == [5]
        assert again.redelivered == {5}
        assert again.ids[0].from_ == ANN
        await world.close()

    run(scenario())


def test_a_subscription_that_went_with_the_whole_store_comes_back_with_the_call_that_waits_on_it() -> None:
    """Redis restarted empty under a held call: the call puts the subscription back and goes on."""

    async def scenario() -> None:
        world = await live()
        call = asyncio.create_task(world.wait(subscription="s", timeout_s=60.0))
        await asyncio.sleep(1.0)
        await world.store.ledger.forget(world.key)
        await world.store.documents.delete(world.key, KIND, "s")
        await world.arrive(5)
        outcome = await call
        assert ids(outcome.ids) == [5]
        assert (await world.wait(subscription="s", after_id=5, timeout_s=0.0)).after_id == 5
        await world.close()

    run(scenario())


def test_too_much_outstanding_comes_again_before_anything_new() -> None:
    """An agent that never acknowledges: the store does not fill up, the oldest comes again."""

    async def scenario() -> None:
        world = await live()
        await world.wait(subscription="s", timeout_s=0.0)
        calls = [asyncio.create_task(world.wait(subscription="s", settle_s=0.0, timeout_s=100.0)) for _ in range(33)]
        await asyncio.sleep(1.0)
        for message_id in range(10, 43):
            await world.arrive(message_id)
            await asyncio.sleep(1.0)
        outcomes = [await call for call in calls]
        assert sum(len(outcome.redelivered) for outcome in outcomes) == 1
        assert sorted(id_ for outcome in outcomes for id_ in ids(outcome.ids))[:2] == [10, 10]
        await world.close()

    run(scenario())


def test_without_the_store_a_subscription_waits() -> None:
    """Redis is away: nothing can be delivered safely, so the call holds and ends with a timeout that says why."""

    async def scenario() -> None:
        world = await live()
        await world.wait(subscription="s", timeout_s=0.0)

        async def away(*_: object, **__: object) -> None:
            raise LedgerUnavailable("Redis: gone")

        kept, world.store.documents.load = world.store.documents.load, away  # type: ignore[method-assign, assignment]
        outcome = await world.wait(subscription="s", after_id=4, timeout_s=5.0)
        assert (outcome.status, outcome.after_id) == ("timeout", 4)
        assert outcome.notes == (STORE_AWAY,)
        with pytest.raises(LedgerUnavailable):
            await world.wait(subscription="s", timeout_s=5.0)
        world.store.documents.load = kept  # type: ignore[method-assign]
        await world.arrive(5)
        assert ids((await world.wait(subscription="s", after_id=4)).ids) == [5]
        await world.close()

    run(scenario())


def test_a_stored_delivery_whose_answer_was_lost_is_the_calls_own() -> None:
    """The store took the delivery but its answer got lost: the call finds its own delivery and returns it, unmarked."""

    async def scenario() -> None:
        world = await live()
        await world.wait(subscription="s", timeout_s=0.0)
        store = world.store.documents.store
        losses = 1

        async def lossy(*arguments: object, **more: object) -> int:
            nonlocal losses
            stored = await store(*arguments, **more)  # type: ignore[arg-type]
            if losses:
                losses -= 1
                raise LedgerUnavailable("Redis: the answer was lost")
            return stored

        await world.arrive(5)
        world.store.documents.store = lossy  # type: ignore[method-assign]
        outcome = await world.wait(subscription="s", after_id=4, timeout_s=20.0)
        assert (ids(outcome.ids), outcome.redelivered) == ([5], frozenset())
        await world.close()

    run(scenario())


def test_nothing_is_delivered_while_the_host_cannot_confirm_the_key() -> None:
    """The host is down when a message is there: the call holds, and nothing is outstanding afterwards."""

    async def scenario() -> None:
        world = await live()
        await world.wait(subscription="s", timeout_s=0.0)
        await world.arrive(5)
        world.host.error = HostUnreachable("no answer")
        outcome = await world.wait(subscription="s", after_id=4, timeout_s=10.0)
        assert (outcome.status, outcome.after_id, outcome.skipped) == ("timeout", 4, ())
        world.host.error = None
        assert (await world.wait(subscription="s", after_id=4)).redelivered == frozenset()
        await world.close()

    run(scenario())


def test_a_result_that_comes_again_says_what_is_behind_it_as_the_first_one_did() -> None:
    """The answer was lost; meanwhile more arrived, on its thread and on another. All of that is pending, once each."""

    async def scenario() -> None:
        world = await live()
        await world.wait(subscription="s", timeout_s=0.0)
        await world.arrive(5)
        await world.arrive(6, from_=BEN)
        first = await world.wait(subscription="s", after_id=4)
        assert (ids(first.ids), ids(first.pending), first.pending_count) == ([5], [6], 1)
        again = await world.wait(subscription="s", after_id=4, front=world.another_front())
        assert (ids(again.ids), ids(again.pending), again.pending_count) == ([5], [6], 1)
        await asyncio.sleep(10.0)
        await world.arrive(7, pid=5)
        await world.push(world.host.put(8, no_reply=True))
        again = await world.wait(subscription="s", after_id=4)
        assert (ids(again.ids), ids(again.pending), again.pending_count) == ([5], [6, 7], 2)
        following = await world.wait(subscription="s", after_id=5)
        assert (ids(following.ids), ids(following.pending)) == ([6], [7])
        await world.close()

    run(scenario())


def test_what_is_behind_is_told_by_the_filters_of_the_subscription() -> None:
    async def scenario() -> None:
        world = await live()
        await world.wait(subscription="s", from_=ANN, timeout_s=0.0)
        await world.arrive(5)
        await world.arrive(6, from_=BEN)
        await world.arrive(7)
        for _ in range(2):
            outcome = await world.wait(subscription="s", after_id=4)
            assert (ids(outcome.ids), ids(outcome.pending), outcome.pending_count) == ([5], [7], 1)
        await world.close()

    run(scenario())


def test_a_result_comes_again_though_nobody_can_tell_what_is_behind_it() -> None:
    """The store fails when it is read for what is pending: the delivery itself is ready, and the rest comes later."""

    async def scenario() -> None:
        world = await live()
        await world.wait(subscription="s", timeout_s=0.0)
        await world.arrive(5)
        await world.arrive(6, from_=BEN)
        await world.wait(subscription="s", after_id=4)

        async def away(*_: object, **__: object) -> None:
            raise LedgerUnavailable("Redis: gone")

        read, world.store.ledger.read = world.store.ledger.read, away  # type: ignore[method-assign, assignment]
        again = await world.wait(subscription="s", after_id=4)
        assert (ids(again.ids), again.pending_count) == ([5], 0)
        world.store.ledger.read = read  # type: ignore[method-assign]
        assert ids((await world.wait(subscription="s", after_id=5)).ids) == [6]
        await world.close()

    run(scenario())


async def damage(world: World, kind: str, name: str) -> None:
    """What is stored of it is rubbish."""
    stored = await world.store.documents.load(world.key, kind, name)
    assert await world.store.documents.store(world.key, kind, name, b"\xc1 rubbish", expected=stored.version, ttl_s=1e6)


def test_a_subscription_that_cannot_be_read_is_an_error_until_it_is_made_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Taken for none it would begin now, and what came since would be passed over in silence."""

    async def scenario() -> None:
        world = await live()
        position = (await world.wait(subscription="s", timeout_s=0.0)).after_id
        await world.wait(subscription="t", timeout_s=0.0)
        await world.arrive(5)
        await damage(world, KIND, "s")
        for after_id in (None, position):
            with pytest.raises(SubscriptionRefused, match=r"s cannot be read.*wait_subscriptions"):
                await world.wait(subscription="s", after_id=after_id)
        listed = {summary.name: summary.readable for summary in await world.waiting.subscriptions(world.key)}
        assert listed == {"s": False, "t": True}
        assert ids((await world.wait(subscription="t")).ids) == [5]
        assert await world.waiting.delete_subscription(world.key, "s")
        assert ids((await world.wait(subscription="s", after_id=position)).ids) == [5]
        await world.close()

    run(scenario())
    assert "unreadable" in [record.__dict__.get("action") for record in caplog.records]
    assert "rubbish" not in caplog.text


def test_a_subscription_damaged_under_a_waiting_call_ends_it_with_the_same_error() -> None:
    async def scenario() -> None:
        world = await live()
        await world.wait(subscription="s", timeout_s=0.0)
        waiting = asyncio.create_task(world.wait(subscription="s", after_id=4, timeout_s=30.0))
        await asyncio.sleep(1.0)
        await damage(world, KIND, "s")
        await world.arrive(5)
        with pytest.raises(SubscriptionRefused, match="cannot be read"):
            await waiting
        await world.close()

    run(scenario())
