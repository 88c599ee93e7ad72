"""Consumers that keep calling, and what must be true of what they get."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from fmsg.errors import FmsgError
from ledger import catch_up
from ledger.port import LedgerError
from ledger.values import START, Arrival
from mcp_front.waiting.decide import CUT_BY_TIME
from mcp_front.waiting.request import WaitError, WaitOutcome, WaitRequest
from mcp_front.waiting.results import STORE_AWAY
from tests.chaos.model_case import BUSY_S, Case, Consumer
from tests.chaos.model_world import ADDRESSES, ModelWorld
from tests.mcp_front.waiting.virtual import run
from tests.mcp_front.waiting.world import ME

MENDED_S = BUSY_S + 2.0
"""When the world is mended, in seconds since the case began."""
SETTLED_S = 3.0
"""By then what is available is recorded, if no fault is in the way."""
PATIENCE_CALLS = 400
"""Calls after which a consumer must have come to rest."""


class Broken(AssertionError):
    """A case that breaks a promise."""


class Agent:
    """One consumer: calls, remembers the position, sometimes dies and begins again."""

    def __init__(self, world: ModelWorld, spec: Consumer, name: int) -> None:
        self.spec = spec
        self.received: list[int] = []
        """In the order received, each time."""
        self.unmarked: Counter[int] = Counter()
        self.began_s: float | None = None
        """When the call began that first gave a position."""
        self.settled_s = 0.0
        """When that call ended."""
        self.began_with: int | None = None
        self.thread_of: int | None = None
        self._world = world
        self._name = name
        self._rng = random.Random(spec.seed)
        self._first = True

    async def run(self) -> None:
        """Call until nothing comes any more after everything was mended."""
        await _until(self.spec.at_s)
        after_id = self._begin()
        quiet = 0
        for _ in range(PATIENCE_CALLS):
            mended = _now() > MENDED_S
            outcome = await self._call(after_id)
            if outcome is None:
                await asyncio.sleep(self._rng.uniform(0.0, 1.0))
                continue
            self._check(outcome)
            after_id = self._next(outcome)
            quiet = quiet + 1 if outcome.status == "timeout" and mended else 0
            if quiet >= 3:
                return
            await asyncio.sleep(self._rng.choice((0.0, 0.0, 0.5, 3.0)))
        raise Broken(f"agent {self._name} never comes to rest; last received {self.received[-5:]}")

    def _begin(self) -> int | None:
        world = self._world
        listed = list(world.available)
        if self.spec.thread_of in world.host.messages:
            self.thread_of = self.spec.thread_of
        if self.spec.start == "listed" and listed:
            self.began_with = self._rng.choice(listed)
        elif self.spec.start == "own" and world.sent:
            self.began_with = self._rng.choice(sorted(world.sent))
        elif self.spec.start == "zero":
            self.began_with = 0
        return self.began_with

    def _next(self, outcome: WaitOutcome) -> int | None:
        """The position to pass next; a subscription's consumer may have forgotten it."""
        if self.spec.subscription and not self._world.case.has("flush") and self._rng.random() < self.spec.accidents:
            return None
        return outcome.after_id

    async def _call(self, after_id: int | None) -> WaitOutcome | None:
        world, rng = self._world, self._rng
        at = rng.randrange(2)
        request = WaitRequest(
            after_id=after_id,
            from_=ADDRESSES[self.spec.from_] if self.spec.from_ else None,
            thread_of=self.thread_of,
            timeout_s=rng.choice((0.0, 2.0, 7.0, 15.0)),
            settle_s=rng.choice((0.0, 0.5, 3.0)),
            subscription=self.spec.subscription,
        )
        began_s = _now()
        loop = asyncio.get_running_loop()
        call = loop.create_task(world.fronts[at].wait(world.caller, request))
        world.calls[at].add(call)
        call.add_done_callback(world.calls[at].discard)
        if rng.random() < self.spec.accidents:
            loop.call_later(rng.uniform(0.0, 8.0), call.cancel)
        try:
            outcome = await call
        except asyncio.CancelledError:
            if not call.cancelled():
                raise
            return None
        except WaitError:
            raise
        except (FmsgError, LedgerError):
            return None
        if self.began_s is None:
            self.began_s = began_s
            self.settled_s = _now()
        await self._check_cohesion(request, outcome)
        return outcome

    def _check(self, outcome: WaitOutcome) -> None:
        roots = {self._world.host.root(entry.id) for entry in outcome.ids}
        if len(roots) > 1:
            raise Broken(f"agent {self._name}: a batch of {len(roots)} threads: {_ids(outcome)}")
        for entry in outcome.ids:
            if not self.wants(entry.id):
                raise Broken(f"agent {self._name}: {entry.id} does not qualify")
            self.received.append(entry.id)
            if entry.id not in outcome.already_returned | outcome.redelivered:
                self.unmarked[entry.id] += 1

    async def _check_cohesion(self, request: WaitRequest, outcome: WaitOutcome) -> None:
        """What of the thread arrived within the window of the first comes with it, as far as it is in the ledger."""
        if not outcome.ids or outcome.redelivered or outcome.ids[0].at == START or self.spec.subscription:
            return
        if outcome.ids[0].id in outcome.already_returned:
            return  # what comes again in doubt comes without what certainly lay before
        if request.after_id == self.began_with:
            return  # what lies before the id it began with is not for it, wherever it was recorded
        store = self._world.store
        if store.down or store.lossy or {CUT_BY_TIME, STORE_AWAY} & set(outcome.notes):
            return
        opener = outcome.ids[0]
        try:
            book = await self._world.store.ledger.read(self._world.caller.key, opener.at.before(), 1000)
        except LedgerError:
            return
        if not book.entries or book.entries[0].at != opener.at:
            return
        got = {entry.id for entry in outcome.ids} | set(self.received)
        for entry in book.entries:
            together = entry.root == opener.root != 0 and entry.arrived_at_s <= opener.arrived_at_s + request.settle_s
            if together and self.wants(entry.id) and entry.id not in got:
                raise Broken(f"agent {self._name}: {entry.id} arrived within the window of {opener.id}, not returned")

    def wants(self, message_id: int) -> bool:
        """Whether a message qualifies for this consumer."""
        message = self._world.host.messages[message_id]
        if message.from_ == ME or message.reaction is not None or message.no_reply:
            return False
        if self.spec.from_ and message.from_ != ADDRESSES[self.spec.from_]:
            return False
        root = self._world.host.root
        return self.thread_of is None or root(message_id) == root(self.thread_of)

    def expected(self) -> list[int]:
        """What this consumer must have received, at least."""
        world = self._world
        if self.began_s is None:
            return []
        if self.began_with is None:
            since_s = self.began_s
        elif self.began_with == 0:
            since_s = float("-inf")
        else:
            since_s = world.available.get(self.began_with, world.sent.get(self.began_with, float("inf")))
            if len(world.case.consumers) > 1:
                # Another agent may have been handed this very id as a position: then the recorded order counts, and
                # what the host had when this agent saw the id may lie before it.
                since_s = max(since_s, self.began_s + SETTLED_S)
        return [
            id_
            for id_, at_s in world.available.items()
            if at_s > since_s and self.wants(id_) and not self._cannot_tell(id_, at_s)
        ]

    def _cannot_tell(self, message_id: int, at_s: float) -> bool:
        """A first call that asks the host cannot tell when a message arrived that was long on its way."""
        if self.began_with is not None or self.began_s is None:
            return False
        ops = [op for op in self._world.case.ops if op.id == message_id]
        trims = self._world.case.max_entries < 64  # what came in that call may be trimmed before it looks
        if (trims or any(op.late_s for op in ops)) and at_s <= self.settled_s:
            return True
        # Nor if the ledger's clock is set in the middle of it.
        steps = any(op.what == "step" and self.began_s <= op.at_s <= self.settled_s for op in self._world.case.ops)
        if steps and self.began_s <= at_s <= self.settled_s:
            return True
        # Nor whether an old one became available in the very second in which a ledger began without it.
        old = any(op.kind in ("send", "add") for op in ops)
        return old and at_s <= self.began_s + 1.0 + 2 * self._world.case.latency_s


def _ids(outcome: WaitOutcome) -> list[int]:
    return [entry.id for entry in outcome.ids]


def play(case: Case) -> None:
    """Play a case in virtual time. Raises `Broken` (or whatever goes wrong)."""
    usual, catch_up.SNAPSHOT_ENTRIES = catch_up.SNAPSHOT_ENTRIES, case.snapshot
    try:
        run(_play(case))
    finally:
        catch_up.SNAPSHOT_ENTRIES = usual


async def _play(case: Case) -> None:
    world = ModelWorld(case)
    for op in case.ops:
        if op.at_s < 0:
            world.do(op)
    if not case.cold:
        await world.feed.look_everywhere()
    world.feed.start()
    agents = [Agent(world, spec, number) for number, spec in enumerate(case.consumers)]
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_events(world))
            for agent in agents:
                group.create_task(agent.run())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        await world.feed.stop()
        await world.store.availability.aclose()
        for calls in world.calls:
            for call in tuple(calls):
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
    _judge(case, agents)


async def _events(world: ModelWorld) -> None:
    for op in world.case.ops:
        if op.at_s >= 0:
            await _until(op.at_s)
            world.do(op)
    await _until(MENDED_S)
    await world.mend()


def _judge(case: Case, agents: list[Agent]) -> None:
    forgetful = case.has("flush")
    shared: dict[str, list[Agent]] = {}
    for number, agent in enumerate(agents):
        shared.setdefault(agent.spec.subscription or f"agent {number}", []).append(agent)
    for name, group in shared.items():
        received = Counter[int]()
        unmarked = Counter[int]()
        for agent in group:
            received.update(agent.received)
            unmarked.update(agent.unmarked)
        # A subscription begins with the call that makes it: while the host is down that need not be the first.
        choose = max if case.has("host down") else min
        first = choose(group, key=lambda agent: agent.began_s if agent.began_s is not None else float("inf"))
        # A message that was minutes on its way, not recorded yet, and a store that forgets at that moment.
        hopeless = {op.id for op in case.ops if op.late_s > 100.0} if forgetful else set()
        lost = [id_ for id_ in first.expected() if id_ not in received and id_ not in hopeless]
        # One id can name two positions: of an agent that was handed it before its store failed, and of another, after.
        # And a subscription that went with the store begins where the first consumer says that comes back to it.
        ambiguous = forgetful and len(agents) > 1 and (not first.spec.subscription or len(group) > 1)
        if lost and not ambiguous:
            raise Broken(f"{name}: lost {lost}; received {list(received)}")
        twice = [id_ for id_, count in unmarked.items() if count > 1]
        if twice and not forgetful:
            raise Broken(f"{name}: twice and unmarked {twice}")


async def _until(at_s: float) -> None:
    await asyncio.sleep(max(at_s - _now(), 0.0))


def _now() -> float:
    return asyncio.get_running_loop().time()


__all__ = ["Arrival", "Broken", "play"]
