"""The simulated rest of the world: a store that fails, a feed that lies, fronts that restart."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

from fmsg.errors import FmsgError, HostUnreachable
from fmsg.message import Message
from ledger.availability import ProbedAvailability
from ledger.catch_up import catch_up, seen_from
from ledger.memory import (
    MemoryActivations,
    MemoryDeferredTasks,
    MemoryDocuments,
    MemoryFleet,
    MemoryLedger,
    MemoryNotifications,
)
from ledger.port import FeedReport, LedgerError, LedgerUnavailable, Member, NoLedger, Store
from ledger.values import CallerKey, LedgerLimits, Source
from mcp_front.waiting.wait import Waiting
from tests.chaos.model_case import Case, Op
from tests.mcp_front.waiting.virtual import wall_s
from tests.mcp_front.waiting.world import ANN, API_URL, BEN, ME, SOMEBODY, FakeCaller, Host

ADDRESSES = {"ann": ANN, "ben": BEN, "me": ME}
RECONCILE_S = 20.0
"""Sooner than in earnest, so that a case is short."""


class FaultyStore:
    """A memory store that can be away, refuse writes, lose answers, forget everything, and send no notifications."""

    def __init__(self, limits: LedgerLimits, rng: random.Random) -> None:
        self.down = False
        self.lossy = False
        self.read_only = False
        self.deaf = False
        self.step_s = 0.0
        self._limits = limits
        self._rng = rng
        self._notifications = MemoryNotifications()
        self.availability = ProbedAvailability(self._probe, rng=random.Random(3))
        self.flush()

    def flush(self) -> None:
        """Everything is gone."""
        limits = self._limits
        self._ledger = MemoryLedger(limits=limits, clock=self._clock, notifications=self._notifications)
        self._activations = MemoryActivations(ttl_s=limits.activation_ttl_s, clock=self._clock)
        self._fleet = MemoryFleet(heartbeat_ttl_s=limits.heartbeat_ttl_s, clock=self._clock)
        self._documents = MemoryDocuments(clock=self._clock)
        self._deferred = MemoryDeferredTasks(clock=self._clock)

    def _clock(self) -> float:
        return wall_s() + self.step_s

    @property
    def ledger(self) -> Any:
        return _Faulty(self, "_ledger")

    @property
    def activations(self) -> Any:
        return _Faulty(self, "_activations")

    @property
    def fleet(self) -> Any:
        return _Faulty(self, "_fleet")

    @property
    def documents(self) -> Any:
        return _Faulty(self, "_documents")

    @property
    def deferred(self) -> Any:
        return _Faulty(self, "_deferred")

    @property
    def notifications(self) -> FaultyStore:
        return self

    def listen(self, caller: CallerKey, wake: Callable[[], None]) -> Callable[[], None]:
        """Notifications that are lost at times."""
        return self._notifications.listen(caller, lambda: None if self.deaf or self.down else wake())

    def running(self) -> AbstractAsyncContextManager[None]:
        """Nothing to run."""
        return self._notifications.running()

    async def ping(self) -> None:
        """See `ledger.port.Store`."""
        await self.pass_(_nothing, writes=True)

    async def pass_(self, call: Callable[[], Any], *, writes: bool) -> Any:
        """One command."""
        await asyncio.sleep(0)
        if self.down or (self.read_only and writes):
            self._fail("the store is away")
        result = await call()
        if self.lossy and self._rng.random() < 0.1:
            self._fail("the answer was lost")
        return result

    def _fail(self, text: str) -> None:
        self.availability.failed()
        raise LedgerUnavailable(text)

    async def _probe(self) -> None:
        if self.down or self.read_only:
            raise LedgerUnavailable("the store is away")


async def _nothing() -> None:
    return


READS = frozenset(
    {"active", "compare", "feed", "feeds", "find", "get", "heads", "holders", "load", "members", "names"}
    | {"read", "read_back", "settled", "state"}
)
"""The commands that a store answers which takes no writes."""


class _Faulty:
    """A part of the store as it is at the moment of each call."""

    def __init__(self, store: FaultyStore, part: str) -> None:
        self._store = store
        self._part = part

    def __getattr__(self, name: str) -> Any:
        found = getattr(getattr(self._store, self._part), name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *args, **kwargs: self._store.pass_(lambda: found(*args, **kwargs), writes=name not in READS)


class Feed:
    """The daemon of the case: pushes what it hears of, finds the rest by looking."""

    def __init__(self, world: ModelWorld, live: bool) -> None:
        self.alive = live
        self.connected = True
        self._world = world
        self._live = False
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Run until `stop`."""
        self._spawn(self._run())

    async def stop(self) -> None:
        """End everything that was started."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hear(self, message: Message, op: Op) -> None:
        """The host has an event for us."""
        if not (self.alive and self.connected) or op.lost:
            return
        for delay_s in (op.delay_s, op.delay_s + 1.0)[: 2 if op.twice else 1]:
            self._spawn(self._push(message, delay_s))

    async def look_everywhere(self) -> None:
        """Compare the whole list."""
        await self._catch_up("backfill", min_pages=9)

    async def _catch_up(self, source: Source, *, min_pages: int = 1) -> None:
        world = self._world
        await catch_up(
            world.caller.api,
            world.store.ledger,
            world.caller.key,
            ME,
            source=source,
            min_pages=min_pages,
        )

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _push(self, message: Message, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if not (self.alive and self.connected):
            return
        world = self._world
        root = world.host.root(message.id) if message.id % 3 else 0
        try:
            await world.store.ledger.append(world.caller.key, [seen_from(message, address=ME, root=root)], "push")
        except NoLedger:
            self._live = False
        except LedgerError:
            self._live = False

    async def _run(self) -> None:
        reconciled_s = 0.0
        while True:
            now_s = asyncio.get_running_loop().time()
            try:
                if not self.alive:
                    self._live = False
                else:
                    await self._world.store.fleet.beat(Member(id="d", name="d", since_s=0.0))
                    await self._serve(now_s - reconciled_s >= RECONCILE_S)
                    if now_s - reconciled_s >= RECONCILE_S:
                        reconciled_s = now_s
            except (LedgerError, FmsgError):
                self._live = False
            await asyncio.sleep(3.0)

    async def _serve(self, reconcile: bool) -> None:
        world = self._world
        if not self.connected:
            self._live = False
            await self._report("backing_off")
            return
        if not self._live:
            await self.look_everywhere()
            self._live = True
        elif reconcile:
            await self._catch_up("reconcile")
        if await world.store.activations.get(world.caller.key) is not None:
            await self._report("live")

    async def _report(self, state: str) -> None:
        world = self._world
        await world.store.activations.report(world.caller.key, FeedReport(state=state, daemon="d", since_s=0.0))


class ModelWorld:
    """Everything around the consumers of one case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.host = Host()
        self.host.latency_s = case.latency_s
        self.caller = FakeCaller(self.host)
        limits = LedgerLimits(max_entries=case.max_entries)
        self.store = FaultyStore(limits, random.Random(1))
        self.feed = Feed(self, case.live)
        self.available: dict[int, float] = {}
        """When each message became available to us, in the loop's time, in that order."""
        self.sent: dict[int, float] = {}
        """When each of our own messages was sent."""
        self.fronts = [self._front(), self._front()]
        self.calls: list[set[asyncio.Task[Any]]] = [set(), set()]

    def _front(self) -> Waiting:
        return Waiting(cast("Store", self.store), clock=wall_s, rng=random.Random(2))

    def do(self, op: Op) -> None:
        """An event happens."""
        match op.kind:
            case "message" | "send" | "add":
                self._arrive(op)
            case "draft":
                self.host.put(op.id, from_=ANN, pid=self._pid(op), draft=True)
            case "foreign":
                self.host.put(op.id, from_=ANN, pid=self._pid(op), to=(SOMEBODY,), time_s=wall_s())
            case "own":
                self.host.put(op.id, from_=ME, pid=self._pid(op), to=(ANN,), time_s=wall_s() + min(op.at_s, 0.0))
                self.sent[op.id] = op.at_s
            case _:
                self._fail(op)

    def _pid(self, op: Op) -> int | None:
        return op.pid if op.pid in self.host.messages else None

    def _arrive(self, op: Op) -> None:
        ago_s = -min(op.at_s, 0.0)
        if op.kind == "message":
            message = self.host.put(
                op.id,
                from_=ADDRESSES[op.sender],
                pid=self._pid(op),
                time_s=wall_s() - ago_s - op.late_s,
                no_reply=op.flavor in ("no_reply", "reaction"),
                reaction="👍" if op.flavor == "reaction" else None,
                terminal=op.flavor in ("terminal", "reaction"),
            )
        elif op.id not in self.host.messages:
            return
        else:
            message = self.host.send(op.id) if op.kind == "send" else self.host.add_me(op.id)
        self.available[op.id] = op.at_s
        if op.at_s >= 0:
            self.feed.hear(message, op)

    def _fail(self, op: Op) -> None:
        match op.what:
            case "break" | "repair":
                self.feed.connected = op.what == "repair"
            case "die" | "revive":
                self.feed.alive = op.what == "revive"
            case "down" | "up":
                self.store.down = op.what == "down"
            case "refusing" | "taking":
                self.store.read_only = op.what == "refusing"
            case "lossy" | "sound":
                self.store.lossy = op.what == "lossy"
            case "flush":
                self.store.flush()
            case "host down" | "host up":
                self.host.error = HostUnreachable("no answer") if op.what == "host down" else None
            case "deaf" | "hearing":
                self.store.deaf = op.what == "deaf"
            case "step":
                self.store.step_s += op.number
            case "restart":
                self._restart(int(op.number))

    def _restart(self, at: int) -> None:
        for call in tuple(self.calls[at]):
            call.cancel()
        self.fronts[at] = self._front()

    async def mend(self) -> None:
        """Everything works again, and what was lost is found."""
        self.store.down = self.store.lossy = self.store.deaf = self.store.read_only = False
        self.host.error = None
        self.feed.alive = self.feed.connected = True
        await self.feed.look_everywhere()


__all__ = ["API_URL", "FaultyStore", "Feed", "ModelWorld"]
