"""Lua calls whose Python signature is the contract.

A stub function declares the keys (parameters annotated `Key`, or by what they hold `HashKey` and so on) and arguments,
all keyword-only. Inside the Lua each is a local of the same name; an argument that is a sequence comes last and is a
table; a struct stands for its fields. `Scripts` does the sending: EVALSHA with the NOSCRIPT fallback, bounded
concurrency, one retry of what may be repeated, every failure as `LedgerUnavailable`.

What is stored heals: a key that holds another type than it is declared to hold is dropped, counted, and the script runs
once more, as if there had been none. Other keys are not touched.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Generic, NewType, ParamSpec, Protocol, TypeVar, cast, get_args, get_type_hints

import msgspec
import redis.exceptions as faults

from ledger.deadlines import GaveUp, give_up_at
from ledger.port import LedgerError, LedgerUnavailable
from ledger.unreadable import tell_unreadable
from telemetry.metrics import REDIS_COMMANDS, REDIS_ERRORS

P = ParamSpec("P")
R = TypeVar("R")

Key = NewType("Key", str)
"""The name of a Redis key. All keys of one script carry the same hash tag, so that it runs on a Cluster."""
HashKey = Annotated[Key, "hash"]
SortedSetKey = Annotated[Key, "zset"]
StreamKey = Annotated[Key, "stream"]
StringKey = Annotated[Key, "string"]

_LUA_WORDS = {"and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil"}
_LUA_WORDS |= {"not", "or", "repeat", "return", "then", "true", "until", "while"}

Scalar = str | bytes | int | float

MAX_CONCURRENT = 32
"""Commands in flight per process, where each takes a connection: one Redis thread answers them one by one anyway, and a
wake-up of thousands of waiters must not open thousands of sockets."""

QUEUE_TIMEOUT_S = 10.0
"""How long a command may wait for its turn. Only where Redis hangs would it wait longer."""

LONGEST_S = 40.0
"""No command takes longer: its turn, and two attempts with the time limits of `ledger.redis.topology`, to connect and
to be answered, the second behind a batch that hangs. A deadline beyond that needs no timer."""

RETRY_DELAY_S = 0.1
"""At most this long before the one retry, at random: enough for a connection cut by a restart, too short to pile up."""


_TRANSIENT = (faults.ConnectionError, faults.ClusterError, faults.RedisClusterException)
"""Errors that a moment later may be gone: a restart, a failover, a moved slot."""

_DAMAGE = ("WRONGTYPE", "unreadable: ", "attempt to ", "bad argument", "equal or smaller", "Invalid stream ID")
"""In the text of an error: a script met something else than what belongs into its keys. The server is well."""


class DamagedKey(LedgerError):
    """What is stored under the keys of a script is damaged. The store itself is well."""


class Commands(Protocol):
    """What is asked of a client of redis-py; `redis.asyncio.Redis` and `RedisCluster` both have it."""

    def execute_command(self, *args: Any) -> Awaitable[Any]:
        """Send a command, return the raw answer."""
        ...


class Script(Generic[P, R]):
    """A Lua script that can be called like the stub it was made from, with `Scripts` as the first argument."""

    def __init__(self, stub: Callable[P, R], lua: str, *, idempotent: bool) -> None:
        parameters = inspect.signature(stub).parameters
        if any(parameter.kind is not parameter.KEYWORD_ONLY for parameter in parameters.values()):
            raise TypeError(f"{stub.__name__}: all parameters of a script are keyword-only.")
        hints: dict[str, Any] = {}
        self._groups: list[str] = []
        for name, hint in get_type_hints(stub, include_extras=True).items():
            if name in parameters and hasattr(hint, "__struct_fields__"):
                self._groups.append(name)
                hints |= get_type_hints(hint, include_extras=True)
            elif name in parameters:
                hints[name] = hint
        if _LUA_WORDS & hints.keys():
            raise TypeError(f"{stub.__name__}: {sorted(_LUA_WORDS & hints.keys())} cannot be names in Lua.")
        self.name = stub.__name__.strip("_")
        self.idempotent = idempotent
        self._keys = [name for name in hints if _is_key(hints[name])]
        self._args = [name for name in hints if not _is_key(hints[name])]
        self.holds = [next(iter(get_args(hints[name])[1:]), "") for name in self._keys]
        """What type each key holds; empty where that is not declared."""
        self._many = bool(self._args) and not _is_scalar(hints[self._args[-1]])
        if any(not _is_scalar(hints[name]) for name in self._args[:-1]):
            raise TypeError(f"{stub.__name__}: only the last argument of a script may be a sequence.")
        self.lua = self._prelude() + inspect.cleandoc(lua) + "\n"
        # EVALSHA names scripts by their SHA-1; nothing secret depends on it.
        self.sha = hashlib.sha1(self.lua.encode(), usedforsecurity=False).hexdigest()
        self.__doc__ = stub.__doc__

    async def __call__(self, scripts: Scripts, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the script. Raises `LedgerUnavailable`."""
        given: dict[str, Any] = dict(kwargs)
        for name in self._groups:
            given |= msgspec.structs.asdict(given.pop(name))
        words: list[Any] = [given[name] for name in self._keys]
        count = len(words)
        words.extend(given[name] for name in self._args)
        if self._many:
            words.extend(words.pop())
        return cast("R", await scripts.run(self, count, words))

    def _prelude(self) -> str:
        lines = [f"local {name} = KEYS[{at}]" for at, name in enumerate(self._keys, 1)]
        single = self._args[:-1] if self._many else self._args
        lines += [f"local {name} = ARGV[{at}]" for at, name in enumerate(single, 1)]
        if self._many:
            name, start = self._args[-1], len(single)
            lines.append(f"local {name} = {{}}")
            lines.append(f"for i = {start + 1}, #ARGV do {name}[i - {start}] = ARGV[i] end")
        return "\n".join(lines) + "\n"


def script(lua: str, *, idempotent: bool) -> Callable[[Callable[P, R]], Script[P, R]]:
    """Make a `Script` of a stub. ``idempotent``: to run it twice does what to run it once does, and may be retried."""

    def decorate(stub: Callable[P, R]) -> Script[P, R]:
        return Script(stub, lua, idempotent=idempotent)

    return decorate


class Scripts:
    """Sends scripts and commands to Redis. One per process and topology."""

    def __init__(
        self,
        client: Commands,
        *,
        max_concurrent: int = MAX_CONCURRENT,
        queue_timeout_s: float = QUEUE_TIMEOUT_S,
        rng: random.Random | None = None,
    ) -> None:
        self.on_unavailable: Callable[[], None] = lambda: None
        """Called with each `LedgerUnavailable`, but for those of callers that did not wait long enough."""
        self._client = client
        self._turns = asyncio.Semaphore(max_concurrent)
        self._queue_timeout_s = queue_timeout_s
        self._rng = rng or random.Random()
        self._answered_at = float("-inf")
        """When the store answered last, in the event loop's time."""

    async def run(self, script: Script[..., Any], key_count: int, words: Sequence[Scalar]) -> Any:
        """Run a script: keys first, then arguments. Raises `LedgerUnavailable`."""

        async def attempt() -> Any:
            try:
                return await self._client.execute_command("EVALSHA", script.sha, key_count, *words)
            except faults.NoScriptError:
                # It did not run, so this is no retry. EVAL also loads it for the next time.
                return await self._client.execute_command("EVAL", script.lua, key_count, *words)

        try:
            return await self._send(script.name, attempt, idempotent=script.idempotent)
        except DamagedKey:
            if not await self._heal(script.name, [str(key) for key in words[:key_count]], script.holds):
                raise
        return await self._send(script.name, attempt, idempotent=script.idempotent)

    async def command(self, *words: Scalar, idempotent: bool, holds: str = "") -> Any:
        """Send one command, return redis-py's answer to it. Raises `LedgerUnavailable`.

        ``holds``: the type that belongs under the command's first key.
        """

        async def attempt() -> Any:
            return await self._client.execute_command(*words)

        operation = str(words[0]).lower()
        try:
            return await self._send(operation, attempt, idempotent=idempotent)
        except DamagedKey:
            if not await self._heal(operation, [str(words[1])], [holds]):
                raise
        return await self._send(operation, attempt, idempotent=idempotent)

    async def _heal(self, operation: str, keys: Sequence[str], holds: Sequence[str]) -> bool:
        """Drop the keys that hold another type than they should; whether there were any."""
        words = [word for pair in zip(keys, holds, strict=True) if pair[1] for word in pair]

        async def attempt() -> Any:
            return await self._client.execute_command("EVAL", _HEAL, len(keys), *keys, *words)

        dropped = int(await self._send("heal", attempt, idempotent=True)) if words else 0
        for _ in range(dropped):
            tell_unreadable(operation)
        return dropped > 0

    async def _send(self, operation: str, attempt: Callable[[], Awaitable[Any]], *, idempotent: bool) -> Any:
        """Send, and heed a cancellation even where redis-py loses it.

        It sends with `asyncio.wait_for`, which before Python 3.12 drops a cancellation that meets its end: loops would
        run on after their cancellation, and processes would not stop.
        """
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        try:
            answer = await self._in_time(operation, attempt, idempotent=idempotent)
        except LedgerUnavailable:
            _heed(task, before)
            raise
        _heed(task, before)
        return answer

    async def _in_time(self, operation: str, attempt: Callable[[], Awaitable[Any]], *, idempotent: bool) -> Any:
        """Give up at the deadline of the code that asks (`ledger.deadlines`)."""
        at_s, asked_at = give_up_at(), asyncio.get_running_loop().time()
        if at_s is None or at_s > asked_at + LONGEST_S:
            return await self._sent(operation, attempt, idempotent=idempotent)
        try:
            async with asyncio.timeout_at(at_s):
                return await self._sent(operation, attempt, idempotent=idempotent)
        except TimeoutError:
            error = self._failed(operation, faults.TimeoutError("no answer while it was of use"))
            if self._answered_at > asked_at:
                raise GaveUp(*error.args) from None
            self.on_unavailable()
            raise error from None

    async def _sent(self, operation: str, attempt: Callable[[], Awaitable[Any]], *, idempotent: bool) -> Any:
        await self._turn(operation)
        try:
            REDIS_COMMANDS.labels(operation).inc()
            try:
                answer = await attempt()
                self._answered_at = asyncio.get_running_loop().time()
                return answer
            except _TRANSIENT as error:
                if not idempotent or isinstance(error, faults.AuthenticationError):
                    raise
                REDIS_ERRORS.labels(type(error).__name__).inc()
            await asyncio.sleep(self._rng.uniform(0.0, RETRY_DELAY_S))
            return await attempt()
        except (faults.RedisError, faults.RedisClusterException, OSError) as error:
            if isinstance(error, faults.ResponseError) and any(word in str(error) for word in _DAMAGE):
                self._answered_at = asyncio.get_running_loop().time()
                raise DamagedKey(f"Redis: {operation} met a key that is damaged ({error}).") from error
            failed = self._failed(operation, error)
            self.on_unavailable()
            raise failed from error
        finally:
            self._turns.release()

    async def _turn(self, operation: str) -> None:
        if not self._turns.locked():
            # Comes back at once, so no timer is needed.
            await self._turns.acquire()
            return
        try:
            async with asyncio.timeout(self._queue_timeout_s):
                await self._turns.acquire()
        except TimeoutError:
            failed = self._failed(operation, faults.TimeoutError("no turn: those before it get no answer"))
            self.on_unavailable()
            raise failed from None

    @staticmethod
    def _failed(operation: str, error: Exception) -> LedgerUnavailable:
        kind = type(error).__name__
        REDIS_ERRORS.labels(kind).inc()
        if isinstance(error, faults.ResponseError):
            # It answers, so to look for it would lead astray.
            next_step = "The server refuses this: `fmsg-mcpd doctor --only redis` says why and what to do."
        else:
            next_step = "Check that the server runs and that FMSG_REDIS_URL names it."
        return LedgerUnavailable(f"Redis: {operation} failed ({kind}: {error}). {next_step}")


def _heed(task: asyncio.Task[Any] | None, before: int) -> None:
    """Raise the cancellation that was asked for since and got lost. What runs after an earlier one is left alone."""
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


def _is_scalar(hint: Any) -> bool:
    return hint in (str, bytes, int, float)


def _is_key(hint: Any) -> bool:
    return hint is Key or Key in get_args(hint)[:1]


_HEAL = """
local dropped = 0
for i = 1, #ARGV, 2 do
  local held = redis.call('TYPE', ARGV[i])
  held = held.ok or held
  if held ~= 'none' and held ~= ARGV[i + 1] then dropped = dropped + redis.call('DEL', ARGV[i]) end
end
return dropped
"""
"""Keys and what they should hold, again and again."""
