"""Daemons on a real Redis that is emptied, killed and comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import msgspec
import pytest
import redis

from ledger.embedded import EmbeddedRedis
from ledger.port import LedgerUnavailable, Member
from ledger.seal import SealKeys
from ledger.store import RedisStore
from ledger.values import Arrival
from tests.conftest import flush
from tests.daemon.test_placement import agents, until_placed
from tests.daemon.world import LIMITS, Agent, World, metric, world_of


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedRedis]:
    """A server of this test's own."""
    async with EmbeddedRedis() as server:
        yield server


@pytest.fixture
async def world(server: EmbeddedRedis) -> AsyncIterator[World]:
    """A host, and a store in Redis."""
    seal = SealKeys.parse(SealKeys.generate())
    async with RedisStore(server.url, limits=LIMITS, seal=seal) as store, world_of(store) as world:
        yield world


async def test_callers_change_hands_without_a_moment_without_a_socket(world: World) -> None:
    callers = await agents(world, 12)
    one = await world.daemon("one")
    await until_placed(world, callers, one)
    two = await world.daemon("two")
    await until_placed(world, callers, one, two)
    await one.drain()
    await until_placed(world, callers, two)
    for caller in callers:
        assert min(caller.counts) == 1
        assert max(caller.counts) <= 2
        ids = [world.deliver(caller) for _ in range(3)]
        await caller.until_ids(*ids)


async def ledger_of(world: World, caller: Agent) -> tuple[str, list[Arrival]]:
    """The life of its ledger, and its entries."""
    state = await world.store.ledger.state(caller.key)
    assert state is not None
    return state.epoch, await caller.entries()


async def until_goes_on(world: World, caller: Agent, before: tuple[str, list[Arrival]], *new: int) -> None:
    """Wait until the ledger holds what it held, under the same stream ids, and the new messages after it."""
    epoch, entries = before

    async def goes_on() -> bool:
        if await world.store.ledger.state(caller.key) is None:
            return False
        now_epoch, now = await ledger_of(world, caller)
        return (now_epoch, now[: len(entries)], sorted(one.id for one in now[len(entries) :])) == (
            epoch,
            entries,
            sorted(new),
        )

    await world.bell.until(goes_on)


async def with_messages(world: World, count: int) -> tuple[list[Agent], dict[str, tuple[str, list[Arrival]]]]:
    """Callers on two daemons, to each of whom three messages came, and their ledgers."""
    callers = await agents(world, count)
    one, two = await world.daemon("one"), await world.daemon("two")
    await until_placed(world, callers, one, two)
    for caller in callers:
        ids = [world.deliver(caller) for _ in range(3)]
        await caller.until_ids(*ids)
    await world.until_reconciled(4 * count)
    return callers, {caller.address: await ledger_of(world, caller) for caller in callers}


async def test_a_flushed_redis_is_given_its_ledgers_back_under_the_same_stream_ids(
    world: World, server: EmbeddedRedis
) -> None:
    """Readers' positions stay exact: nothing comes again because of the flush."""
    callers, before = await with_messages(world, 4)
    restored = metric("fmsg_mcpd_ledgers_restored_total")
    flush(server)
    new = {caller.address: world.deliver(caller) for caller in callers}
    for caller in callers:
        await until_goes_on(world, caller, before[caller.address], new[caller.address])
        await caller.ask()
        await caller.until("live")
    quiet = callers[0]
    before[quiet.address] = await ledger_of(world, quiet)
    await world.until_reconciled(16)
    flush(server)
    await until_goes_on(world, quiet, before[quiet.address])
    assert metric("fmsg_mcpd_ledgers_restored_total") > restored, "also where no message comes"


async def test_a_redis_that_dies_and_comes_back_empty_goes_on_where_it_was(world: World, server: EmbeddedRedis) -> None:
    callers, before = await with_messages(world, 4)
    connects = world.host.core.faults.connects
    server.kill()
    new = {caller.address: [world.deliver(caller) for _ in range(3)] for caller in callers}
    await server.restart_async(empty=True)
    for caller in callers:
        await caller.ask()
        await until_goes_on(world, caller, before[caller.address], *new[caller.address])
        await caller.until("live")
    # Daemons that even out their callers may move one meanwhile. An outage that closed sockets would cost each one.
    assert world.host.core.faults.connects < connects + len(callers), "the sockets stayed open all the time"


async def test_a_failover_that_lost_the_tail_gets_it_back_before_anything_new(
    world: World, server: EmbeddedRedis
) -> None:
    callers, early = await with_messages(world, 3)
    with redis.Redis.from_url(server.url) as client:
        old = {key: client.dump(key) for key in client.keys("*")}
        lost = {caller.address: world.deliver(caller) for caller in callers}
        before = {}
        for caller in callers:
            await caller.until_ids(*[one.id for one in early[caller.address][1]], lost[caller.address])
            before[caller.address] = await ledger_of(world, caller)
            assert before[caller.address][1][-1].id == lost[caller.address]
        await world.until_reconciled(12)
        pipeline = client.pipeline()
        pipeline.flushall()
        for key, dump in old.items():
            pipeline.restore(key, 600_000, dump)
        pipeline.execute()
        client.client_kill_filter(_type="pubsub")
    new = {caller.address: world.deliver(caller) for caller in callers}
    for caller in callers:
        await until_goes_on(world, caller, before[caller.address], new[caller.address])


async def test_a_ledger_whose_daemon_died_with_the_store_begins_anew_and_lacks_no_message(
    world: World, server: EmbeddedRedis
) -> None:
    callers = await agents(world, 3)
    running = await world.daemon("one")
    await until_placed(world, callers, running)
    ids = {caller.address: [world.deliver(caller) for _ in range(3)] for caller in callers}
    for caller in callers:
        await caller.until_ids(*ids[caller.address])
    running.task.cancel()
    flush(server)
    await world.daemon("two")
    for caller in callers:
        await caller.ask()
        new = world.deliver(caller)
        await caller.until_ids(*ids[caller.address], new)


async def test_the_dump_of_redis_shows_no_token(world: World, server: EmbeddedRedis) -> None:
    callers = await agents(world, 2)
    running = await world.daemon()
    await until_placed(world, callers, running)
    store = cast("RedisStore", world.store)
    keys = await store.topology.commands.execute_command("KEYS", "*")
    dumps = b"".join([await store.topology.commands.execute_command("DUMP", key) or b"" for key in keys])
    for caller in callers:
        assert caller.token is not None
        for secret in (caller.token.value, caller.api_key, caller.address):
            assert secret.encode() not in dumps


async def stale(world: World, caller: Agent, state: str) -> None:
    """What the store says of a feed is an old word, as on a replica that was promoted a moment too early."""
    report = await caller.report()
    assert report is not None
    await world.store.activations.report(caller.key, msgspec.structs.replace(report, state=state))


async def test_old_reports_of_a_promoted_replica_are_set_right(world: World, server: EmbeddedRedis) -> None:
    """The connections are cut and the store holds older words, for better and for worse: both are said again."""
    alice, bob = await agents(world, 2)
    await world.daemon(scan_s=600.0, backoff_base_s=600.0, backoff_cap_s=600.0)
    for caller in (alice, bob):
        await caller.until("live")
    world.host.control.drop_sockets(bob.address)
    await bob.until("backing_off")
    await stale(world, alice, "backing_off")
    await stale(world, bob, "live")
    with redis.Redis.from_url(server.url) as client:
        client.client_kill_filter(_type="pubsub")
    await alice.until("live")
    await bob.until("backing_off")


async def test_old_reports_are_set_right_though_only_commands_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node of a cluster fails over: the connection for notifications, to another one, does not notice."""
    (alice,) = await agents(world, 1)
    await world.daemon()
    await alice.until("live")
    look, failed = world.store.fleet.beat, 0

    async def fails_once(member: Member) -> None:
        nonlocal failed
        failed += 1
        if failed == 1:
            await stale(world, alice, "backing_off")
            raise LedgerUnavailable("Redis: failing over")
        await look(member)

    monkeypatch.setattr(world.store.fleet, "beat", fails_once)
    await world.bell.until(lambda: failed > 1)
    await alice.until("live")
