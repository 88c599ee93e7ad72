"""Redis killed in the middle of appends: what was confirmed is there, and offsets stay contiguous."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ledger.embedded import EmbeddedRedis, packaged_servers
from ledger.port import LedgerUnavailable, NoLedger
from ledger.redis.topology import connect
from ledger.values import START, Arrival, Baseline, CallerKey, LedgerState, Seen
from tests.contract.backends import RedisBackend, redis_backend
from tests.within import within

pytestmark = pytest.mark.processes

PROGRAMS = [pytest.param(program, id=program.name) for program in packaged_servers()]
CALLERS = [CallerKey(f"{k:032x}") for k in range(3)]
WRITERS = 4
CRASHES = 3
CONFIRMED_BETWEEN = 60
"""Appends confirmed before each crash: enough that all writers are in the middle of one."""


def seen(message_id: int) -> Seen:
    return Seen(id=message_id, pid=None, root=message_id, from_="@bob@b.test", sent_at_s=5.0)


class Writers:
    """Append overlapping runs of ids to every ledger until stopped, and remember what was confirmed in which epoch."""

    def __init__(self, backend: RedisBackend) -> None:
        self._backend = backend
        self.confirmed: dict[tuple[CallerKey, str], set[int]] = {}
        self.refused = 0
        self._count = 0
        self._enough = asyncio.Event()
        self._wanted = 0
        self.stopped = False

    async def run(self, writer: int) -> None:
        """One of the writers."""
        next_id = 1
        while not self.stopped:
            for caller in CALLERS:
                ids = [next_id + (writer + k) % 5 for k in range(5)]
                try:
                    await self._append(caller, ids)
                except LedgerUnavailable:
                    self.refused += 1
            next_id += 3

    async def _append(self, caller: CallerKey, ids: list[int]) -> None:
        try:
            appended = await self._backend.ledger.append(caller, [seen(id_) for id_ in ids], "push")
        except NoLedger:
            await self._backend.ledger.begin(caller, [], Baseline())
            return
        self.confirmed.setdefault((caller, appended.state.epoch), set()).update(ids)
        self._count += 1
        if self._count >= self._wanted:
            self._enough.set()

    async def more(self, appends: int) -> None:
        """Wait until so many more appends were confirmed."""
        self._wanted = self._count + appends
        self._enough.clear()
        await within(self._enough.wait(), 60)


@pytest.fixture(params=PROGRAMS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedRedis]:
    program: Path = request.param
    async with EmbeddedRedis(program=program, persist=True) as found:
        yield found


async def crash(server: EmbeddedRedis, backend: RedisBackend, *, empty: bool) -> Writers:
    """Let writers append through some crashes; `LedgerUnavailable` is all they ever see."""
    writers = Writers(backend)
    async with asyncio.TaskGroup() as tasks:
        for number in range(WRITERS):
            tasks.create_task(writers.run(number))
        for _ in range(CRASHES):
            await writers.more(CONFIRMED_BETWEEN)
            server.kill()
            await server.restart_async(empty=empty)
        await writers.more(CONFIRMED_BETWEEN)
        writers.stopped = True
    return writers


async def whole(backend: RedisBackend, caller: CallerKey) -> tuple[LedgerState, tuple[Arrival, ...]]:
    got = await backend.ledger.read(caller, START, 100_000)
    assert (len(got.entries), got.entries[-1].at) == (got.state.held, got.state.last)
    assert [arrival.at for arrival in got.entries] == sorted({arrival.at for arrival in got.entries})
    assert len({arrival.id for arrival in got.entries}) == len(got.entries)
    times = [arrival.arrived_at_s for arrival in got.entries]
    assert times == sorted(times)
    return got.state, got.entries


async def test_with_its_data_nothing_confirmed_is_lost(server: EmbeddedRedis) -> None:
    async with redis_backend(lambda: connect(server.url)) as backend:
        writers = await crash(server, backend, empty=False)
        for caller in CALLERS:
            state, entries = await whole(backend, caller)
            assert [epoch for who, epoch in writers.confirmed if who == caller] == [state.epoch]
            held = {arrival.id for arrival in entries} | set(range(1, state.baseline.newest_id + 1))
            assert writers.confirmed[caller, state.epoch] <= held


async def test_without_its_data_each_life_has_an_epoch_of_its_own(server: EmbeddedRedis) -> None:
    async with redis_backend(lambda: connect(server.url)) as backend:
        writers = await crash(server, backend, empty=True)
        for caller in CALLERS:
            state, entries = await whole(backend, caller)
            lives = [epoch for who, epoch in writers.confirmed if who == caller]
            assert lives[-1] == state.epoch
            assert len(set(lives)) == len(lives) >= 2
            held = {arrival.id for arrival in entries} | set(range(1, state.baseline.newest_id + 1))
            assert writers.confirmed[caller, state.epoch] <= held


async def test_a_listener_is_woken_after_each_crash(server: EmbeddedRedis) -> None:
    async with redis_backend(lambda: connect(server.url)) as backend:
        woken = asyncio.Event()
        backend.notifications.listen(CALLERS[0], woken.set)
        async with backend.notifications.running():
            for _ in range(CRASHES):
                await within(woken.wait(), 60)
                server.kill()
                woken.clear()
                await server.restart_async(empty=False)
            await within(woken.wait(), 60)
