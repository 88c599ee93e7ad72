"""What one caller, and all callers together, may have of a process: held calls, bytes in flight, host requests."""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from typing import Protocol

import msgspec

from ledger.values import CallerKey
from mcp_front.settings import MIB, Budgets, budget_name
from telemetry import metrics

RETRY_S = 5
"""When to come back over a budget: waits end and answers drain all the time."""
FREE_BYTES = 64 * 1024
"""What a request holds below this is not counted: 10,000 waits that wake at once must not queue for room."""
CONTENT_WEIGHT = 4
"""Bytes of memory for each byte of content in an answer: its pieces, the text, the text in a frame, what is sent."""
ROOM_WITHIN_S = 5.0
"""How long an answer waits for room before it is refused. Clients that read make room within milliseconds."""
KEPT_SHARE = 0.25
"""The part of a total that only callers who hold little of it can have: up to this part of what one caller may have."""


class OverBudget(Exception):
    """Something is over a budget. The text names the budget, its size and what to do.

    ``retry_after_s`` is None where trying again does not help.
    """

    def __init__(self, text: str, *, budget: str, retry_after_s: float | None = RETRY_S) -> None:
        super().__init__(text)
        self.budget = budget
        self.retry_after_s = retry_after_s


def free_frames(error: BaseException) -> None:
    """Free what the functions held that an error has come out of, such as a body.

    A caught error keeps them alive as long as it lives, and in a cycle until a full garbage collection. Their bytes are
    on no budget any more. The lines of the traceback stay. Not for an error that other tasks get, too: a coroutine of
    theirs that still runs would be ended.
    """
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__context__


class HeldCalls:
    """Counts the calls that wait for something to happen.

    It is no context manager: each of 10,000 held calls would keep one, with a generator in it.
    """

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self._by_caller: dict[CallerKey, int] = {}
        self._total = 0

    @property
    def total(self) -> int:
        """How many calls are held."""
        return self._total

    def take(self, caller: CallerKey) -> None:
        """Count one call more, to be ended by `give_back`. Raises `OverBudget`."""
        mine = self._by_caller.get(caller, 0)
        if mine >= self._budgets.max_waits_per_caller:
            raise _too_many_calls("max_waits_per_caller", self._budgets.max_waits_per_caller, "this address")
        if self._total >= self._budgets.max_waits:
            raise _too_many_calls("max_waits", self._budgets.max_waits, "all callers of this server process together")
        self._by_caller[caller] = mine + 1
        self._total += 1

    def give_back(self, caller: CallerKey) -> None:
        """Count one call less."""
        self._total -= 1
        left = self._by_caller[caller] - 1
        if left:
            self._by_caller[caller] = left
        else:
            del self._by_caller[caller]


def _too_many_calls(field: str, limit: int, holder: str) -> OverBudget:
    metrics.REFUSALS.labels(field).inc()
    return OverBudget(
        f"{limit} waits are held for {holder} already, and that is the limit ({budget_name(field)}). "
        f"End one of them or call again in {RETRY_S} s.",
        budget=field,
    )


class ByteLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a `ByteBudget`, the settings that it comes from, and the words for its error."""

    total_bytes: int
    per_caller_bytes: int
    field: str
    field_per_caller: str
    what: str
    remedy: str
    """What makes room, as an imperative."""


def upload_limits(budgets: Budgets) -> ByteLimits:
    """Request bodies that are being received and handled."""
    return ByteLimits(
        total_bytes=budgets.upload_bytes,
        per_caller_bytes=budgets.upload_bytes_per_caller,
        field="upload_bytes",
        field_per_caller="upload_bytes_per_caller",
        what="requests",
        remedy="Send fewer large requests at the same time",
    )


def answer_limits(budgets: Budgets) -> ByteLimits:
    """Answers from before their content is fetched until the client has read them."""
    return ByteLimits(
        total_bytes=budgets.answer_bytes,
        per_caller_bytes=budgets.answer_bytes_per_caller,
        field="answer_bytes",
        field_per_caller="answer_bytes_per_caller",
        what="answers",
        remedy="Read the answers that are under way",
    )


def form_limits() -> ByteLimits:
    """Forms of the sign-in that are being received. Who sends them is not known yet: a network address counts."""
    return ByteLimits(
        total_bytes=64 * MIB,
        per_caller_bytes=2 * MIB,
        field="form_bytes",
        field_per_caller="form_bytes_per_source",
        what="forms",
        remedy="Send fewer forms at the same time",
    )


class _Waiter(msgspec.Struct, frozen=True, eq=False):
    caller: CallerKey
    size: int
    granted: asyncio.Future[None]


class ByteBudget:
    """Bytes in flight, of all callers and of each. A part of the total is kept for callers who hold little."""

    def __init__(self, limits: ByteLimits) -> None:
        self._limits = limits
        self._by_caller: dict[CallerKey, int] = {}
        self._total = 0
        self._waiting: deque[_Waiter] = deque()

    @property
    def total(self) -> int:
        """Bytes held."""
        return self._total

    def take(self, caller: CallerKey, size: int) -> None:
        """Count ``size`` bytes more. Raises `OverBudget`."""
        short = self._shortage(caller, size)
        if short is not None:
            metrics.REFUSALS.labels(short.budget).inc()
            raise short
        self._count(caller, size)

    async def take_soon(self, caller: CallerKey, size: int, *, within_s: float = ROOM_WITHIN_S) -> None:
        """Count ``size`` bytes more once there is room, first come first served. Raises `OverBudget` after the time."""
        short = self._shortage(caller, size)
        if short is None:
            self._count(caller, size)
            return
        if short.retry_after_s is not None:
            waiter = _Waiter(caller, size, asyncio.get_running_loop().create_future())
            self._waiting.append(waiter)
            try:
                async with asyncio.timeout(within_s):
                    await waiter.granted
            except BaseException as error:
                if waiter.granted.done() and not waiter.granted.cancelled():
                    self.give_back(caller, size)  # Granted in the very moment in which the waiting ended.
                else:
                    self._waiting.remove(waiter)
                if not isinstance(error, TimeoutError):
                    raise
            else:
                return
        metrics.REFUSALS.labels(short.budget).inc()
        raise short

    def give_back(self, caller: CallerKey, size: int) -> None:
        """Count ``size`` bytes less."""
        self._total -= size
        left = self._by_caller[caller] - size
        if left:
            self._by_caller[caller] = left
        else:
            del self._by_caller[caller]
        for waiter in tuple(self._waiting):
            if self._total >= self._limits.total_bytes:
                break
            # One that was cancelled goes by itself in its next step.
            if not waiter.granted.done() and self._shortage(waiter.caller, waiter.size) is None:
                self._waiting.remove(waiter)
                self._count(waiter.caller, waiter.size)
                waiter.granted.set_result(None)

    def _count(self, caller: CallerKey, size: int) -> None:
        self._by_caller[caller] = self._by_caller.get(caller, 0) + size
        self._total += size

    def _shortage(self, caller: CallerKey, size: int) -> OverBudget | None:
        limits = self._limits
        mine = self._by_caller.get(caller, 0)
        if size > limits.per_caller_bytes:
            return _too_large(limits, size)
        if mine + size > limits.per_caller_bytes:
            return _full(limits, limits.field_per_caller, limits.per_caller_bytes, f"Your own {limits.what}")
        little = mine + size <= limits.per_caller_bytes * KEPT_SHARE
        room = limits.total_bytes * (1 if little else 1 - KEPT_SHARE)
        if self._total + size > room:
            return _full(limits, limits.field, limits.total_bytes, f"The {limits.what} of all callers")
        return None


def _too_large(limits: ByteLimits, size: int) -> OverBudget:
    return OverBudget(
        f"This needs about {-(-size // MIB)} MiB of the server's memory, and the limit for one caller is "
        f"{limits.per_caller_bytes // MIB} MiB{_variable(limits.field_per_caller)}. Ask for less at once.",
        budget=limits.field_per_caller,
        retry_after_s=None,
    )


def _full(limits: ByteLimits, field: str, limit: int, whose: str) -> OverBudget:
    return OverBudget(
        f"{whose} in flight fill the {limit // MIB} MiB there are for them{_variable(field)}. "
        f"{limits.remedy}, and try again in {RETRY_S} s.",
        budget=field,
    )


def _variable(field: str) -> str:
    """The variable that sets a budget, in brackets; nothing for one that is fixed."""
    return f" ({budget_name(field)})" if field in Budgets.__struct_fields__ else ""


class ByteShare:
    """The bytes that one request holds of a `ByteBudget`, until `release`."""

    __slots__ = ("_budget", "_caller", "held")

    def __init__(self, budget: ByteBudget, caller: CallerKey) -> None:
        """It holds nothing at first."""
        self._budget = budget
        self._caller = caller
        self.held = 0
        """Bytes."""

    def grow_to(self, size: int) -> None:
        """Hold at least ``size`` bytes. Raises `OverBudget`."""
        if size > max(self.held, FREE_BYTES):
            self._budget.take(self._caller, size - self.held)
            self.held = size

    def shrink_to(self, size: int) -> None:
        """Hold at most ``size`` bytes."""
        if size < self.held:
            self._budget.give_back(self._caller, self.held - size)
            self.held = size

    def release(self) -> None:
        """Hold nothing."""
        self.shrink_to(0)


class AnswerRoom(Protocol):
    """The memory for one answer. Tools `reserve` before they fetch content; the transport gives back what they took."""

    async def reserve(self, content_bytes: int) -> None:
        """Make room for so many more bytes of content. Raises `OverBudget` after `ROOM_WITHIN_S` in vain."""
        ...

    def return_unused(self, content_bytes: int) -> None:
        """Give back what was reserved for content that turned out smaller."""
        ...


class AnswerShare(ByteShare):
    """`AnswerRoom` of a request over HTTP. Content up to `FREE_BYTES` in one answer costs nothing."""

    __slots__ = ("_content_bytes",)

    def __init__(self, budget: ByteBudget, caller: CallerKey) -> None:
        super().__init__(budget, caller)
        self._content_bytes = 0

    async def reserve(self, content_bytes: int) -> None:
        size = _counted(self._content_bytes + content_bytes)
        if size > self.held:
            await self._budget.take_soon(self._caller, size - self.held)
            self.held = size
        self._content_bytes += content_bytes

    def return_unused(self, content_bytes: int) -> None:
        self._content_bytes -= content_bytes
        self.shrink_to(_counted(self._content_bytes))

    async def settle(self, size: int) -> None:
        """Hold what the finished answer takes, in place of what was reserved for it. Raises `OverBudget`."""
        if size > max(self.held, FREE_BYTES * CONTENT_WEIGHT):
            await self._budget.take_soon(self._caller, size - self.held)
            self.held = size
        self.shrink_to(size)


def _counted(content_bytes: int) -> int:
    return content_bytes * CONTENT_WEIGHT if content_bytes > FREE_BYTES else 0


class UnboundedRoom:
    """`AnswerRoom` of a process that serves one user."""

    async def reserve(self, content_bytes: int) -> None:
        pass

    def return_unused(self, content_bytes: int) -> None:
        pass


UNBOUNDED_ROOM = UnboundedRoom()
"""It has no state, so there is one."""


class _Queue:
    __slots__ = ("places", "users")

    def __init__(self, places: int) -> None:
        self.places = asyncio.Semaphore(places)
        self.users = 0


class PerCallerLimiter:
    """Limits the requests to the host that one caller has under way. Further ones wait, first come first served.

    A busy caller so leaves the others their share of the connections to the host.
    """

    def __init__(self, per_caller: int) -> None:
        self._per_caller = per_caller
        self._queues: dict[CallerKey, _Queue] = {}

    def __len__(self) -> int:
        return len(self._queues)

    async def acquire(self, caller: CallerKey) -> None:
        """Wait for a place, to be ended by `release`."""
        queue = self._queues.get(caller)
        if queue is None:
            queue = self._queues[caller] = _Queue(self._per_caller)
        queue.users += 1
        try:
            await queue.places.acquire()
        except BaseException:
            self._leave(caller, queue)
            raise

    def release(self, caller: CallerKey) -> None:
        """Leave a place to the next request."""
        queue = self._queues[caller]
        queue.places.release()
        self._leave(caller, queue)

    def _leave(self, caller: CallerKey, queue: _Queue) -> None:
        queue.users -= 1
        if not queue.users:
            del self._queues[caller]
