"""A host, a store, daemons and callers in one process, and a bell that rings whenever anything observable happens."""

from __future__ import annotations

import asyncio
import functools
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Self

from prometheus_client import REGISTRY

from daemon.daemon import Daemon
from daemon.settings import DaemonSettings
from fmsg.http import Deadlines, HostHttp
from fmsg.message import Draft
from fmsg.tokens import AccessToken
from fmsg.webapi import WebApi
from ledger.memory import MemoryOrders
from ledger.port import FeedReport, LedgerUnavailable, Store
from ledger.values import START, Arrival, CallerKey, LedgerLimits, caller_key
from sandbox.host import SandboxHost, serve
from tests.key_tokens import KeyTokens

WITHIN_S = 10.0
"""The longest wait for anything a test expects; reached only when it fails."""

LOOK_S = 0.05
"""Between looks at what rings no bell: counters."""

TTL_S = 0.6
"""Of heartbeats in tests."""

QUICK = {
    "heartbeat_s": 0.1,
    "heartbeat_ttl_s": TTL_S,
    "look_s": 0.1,
    "scan_s": 0.2,
    "connects_per_s": 1000.0,
    "backoff_base_s": 0.02,
    "backoff_cap_s": 0.05,
    "ask_s": 0.1,
    "poll_s": 0.05,
    "reconcile_s": 0.1,
    "reconcile_quiet_s": 0.2,
    "reconcile_reconnected_s": 0.1,
    "reconcile_alarmed_s": 0.1,
    "lost_grace_s": 0.1,
    "handover_round_s": 0.02,
    "pull_settle_s": 0.1,
    "pull_report_s": 0.5,
    "missing_grace_s": 5.0,
    "drain_s": 5.0,
}
"""Settings that make everything happen within a test."""

LIMITS = LedgerLimits(heartbeat_ttl_s=TTL_S)


def quick(**changes: Any) -> DaemonSettings:
    """Settings for a test."""
    return DaemonSettings(**{**QUICK, **changes})


def metric(name: str) -> float:
    """The sum of a metric over its labels."""
    return sum(sample.value for family in REGISTRY.collect() for sample in family.samples if sample.name == name)


class Bell:
    """Wakes a test whenever something happened that it may wait for."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        """How often which method was called."""
        self._waiting: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        """Something happened."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def on(self, thing: Any, *names: str) -> None:
        """Ring after each call of these methods of an object."""
        for name in names:
            setattr(thing, name, self._ringing(getattr(thing, name)))

    def _ringing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        name = method.__name__
        if asyncio.iscoroutinefunction(method):

            @functools.wraps(method)
            async def after(*args: Any, **kwargs: Any) -> Any:
                self.calls[name] += 1
                try:
                    return await method(*args, **kwargs)
                finally:
                    self.ring()

            return after

        @functools.wraps(method)
        def at_once(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            finally:
                self.ring()

        return at_once

    async def until(self, check: Callable[[], bool | Awaitable[bool]], *, within_s: float = WITHIN_S) -> None:
        """Return once the check holds; it is made after each ring, and now and then for what has no bell."""
        async with asyncio.timeout(within_s):
            while True:
                waiting = asyncio.get_running_loop().create_future()
                self._waiting.add(waiting)
                try:
                    holds = check()
                    if holds if isinstance(holds, bool) else await holds:
                        return
                    await asyncio.wait([waiting], timeout=LOOK_S)
                finally:
                    self._waiting.discard(waiting)


class Agent:
    """A caller: an address with a key, and what its ledger and feed say."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.counts: list[int] = []
        """How many sockets it had, after each change."""
        self.address = f"@{name}@{world.host.domain}"
        self.api_key = world.host.control.create_key(self.address)
        self.key: CallerKey = caller_key(world.http.api_url, self.address)
        self.api = WebApi(world.http, KeyTokens(world.http, self.api_key))
        """What the person behind the address does by itself."""
        self.token: AccessToken | None = None

    async def ask(self, *, token: bool = True) -> None:
        """What a request does: leave a token (a new one each time), mark the caller active."""
        if token:
            self.token = await KeyTokens(self.world.http, self.api_key).token()
        await self.world.store.activations.activate(
            self.key,
            address=self.address,
            api_url=self.world.http.api_url,
            token=self.token.value if token and self.token else None,
            token_expires_at_s=self.token.expires_at_s if token and self.token else 0.0,
        )

    async def draft(self, *to: Agent, body: str = "hello", pid: int | None = None) -> int:
        """Create a draft; its id."""
        addresses = tuple(agent.address for agent in to)
        draft = Draft(from_=self.address, to=addresses, type="text/plain", size=len(body), data=body, pid=pid)
        return await self.api.create_draft(draft)

    async def send(self, *to: Agent, body: str = "hello", pid: int | None = None) -> int:
        """Send a message; its id."""
        return (await self.api.send(await self.draft(*to, body=body, pid=pid))).id

    async def report(self) -> FeedReport | None:
        """The last report of its feed."""
        return await self.world.store.activations.feed(self.key)

    async def until(self, state: str, *, daemon: str | None = None) -> FeedReport:
        """Wait until its feed reports the state."""
        found: list[FeedReport] = []

        async def reached() -> bool:
            report = await self.report()
            if report is None or report.state != state or daemon not in (None, report.daemon):
                return False
            found.append(report)
            return True

        await self.world.bell.until(reached)
        return found[-1]

    async def entries(self) -> list[Arrival]:
        """Everything in its ledger."""
        if await self.world.store.ledger.state(self.key) is None:
            return []
        return list((await self.world.store.ledger.read(self.key, START, 10_000)).entries)

    async def until_ids(self, *ids: int) -> list[Arrival]:
        """Wait until its ledger holds exactly these ids, in any order; the entries."""

        async def there() -> bool:
            return sorted(entry.id for entry in await self.entries()) == sorted(ids)

        await self.world.bell.until(there)
        return await self.entries()

    @property
    def sockets(self) -> int:
        """Its open sockets at the host."""
        return len(self.world.host.core.listener.ears(self.address))

    async def until_sockets(self, count: int) -> None:
        """Wait until the host counts so many sockets of it."""
        await self.world.bell.until(lambda: self.sockets == count)


class Running:
    """A daemon that runs."""

    def __init__(self, daemon: Daemon, task: asyncio.Task[None], stop: asyncio.Event) -> None:
        self.daemon = daemon
        self.task = task
        self.stop = stop

    async def drain(self) -> None:
        """Stop it properly."""
        self.stop.set()
        await self.task


class Cable:
    """A store as one daemon sees it. Pulled, every call hangs until it is plugged in again."""

    def __init__(self, store: Store) -> None:
        self.plugged = asyncio.Event()
        self.plugged.set()
        for part in ("ledger", "notifications", "availability", "activations", "fleet", "documents", "deferred"):
            setattr(self, part, _Part(getattr(store, part), self.plugged))

    ledger: Any
    notifications: Any
    availability: Any
    activations: Any
    fleet: Any
    documents: Any
    deferred: Any

    async def ping(self) -> None:
        """Wait for the plug."""
        await self.plugged.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class _Part:
    def __init__(self, part: Any, plugged: asyncio.Event) -> None:
        self._part = part
        self._plugged = plugged

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._part, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def through(*args: Any, **kwargs: Any) -> Any:
            await self._plugged.wait()
            return await method(*args, **kwargs)

        return through


class World:
    """Everything a test of the daemon needs."""

    def __init__(self, host: SandboxHost, http: HostHttp, store: Store, stack: AsyncExitStack) -> None:
        self.host = host
        self.http = http
        self.store = store
        self.bell = Bell()
        self.bell.on(store.ledger, "append", "begin", "set_roots", "forget")
        self.bell.on(store.activations, "report", "retire", "activate", "get")
        self.bell.on(store.fleet, "take", "release", "beat", "leave")
        self.orders = MemoryOrders()
        """How an operator speaks to the daemons."""
        self._agents: dict[str, Agent] = {}
        self._watch_sockets()
        self.failures = 0
        """Calls to the store that failed in `store_away`."""
        self._stack = stack

    async def agent(self, name: str, *, ask: bool = True) -> Agent:
        """A caller; ``ask``: it has asked already."""
        agent = self._agents[name] = Agent(self, name)
        if ask:
            await agent.ask()
        return agent

    async def daemon(self, name: str = "daemon", *, store: Store | None = None, **settings: Any) -> Running:
        """A daemon that runs until the end of the test."""
        daemon = Daemon(
            store or self.store,
            self.http,
            name=name,
            settings=quick(**settings),
            rng=random.Random(name),
            orders=self.orders,
        )
        stop = asyncio.Event()
        task = asyncio.create_task(daemon.run(stop))  # ended by _end
        running = Running(daemon, task, stop)
        self._stack.push_async_callback(self._end, running)
        await daemon.ready.wait()
        return running

    def _watch_sockets(self) -> None:
        """Let each agent remember how many sockets it had."""
        listener = self.host.core.listener

        def noting(method: Callable[..., None]) -> Callable[..., None]:
            def then(address: str, ear: Any) -> None:
                method(address, ear)
                for agent in self._agents.values():
                    if agent.address == address:
                        agent.counts.append(agent.sockets)
                self.bell.ring()

            return then

        for name in ("add", "remove"):
            setattr(listener, name, noting(getattr(listener, name)))

    @contextmanager
    def store_away(self, *, whole: bool = False) -> Iterator[None]:
        """The ledgers cannot be reached meanwhile, nor anything else in the ``whole`` store."""
        parts: dict[Any, tuple[str, ...]] = {
            self.store.ledger: ("state", "append", "compare", "find", "read", "heads", "begin", "restore", "set_roots"),
        }
        if whole:
            parts[self.store.activations] = ("active", "get", "report", "retire")
            parts[self.store.fleet] = ("beat", "members", "take", "release")
        there = [(part, name, getattr(part, name)) for part, names in parts.items() for name in names]

        async def away(*_: Any, **__: Any) -> None:
            self.failures += 1
            self.bell.ring()
            raise LedgerUnavailable("not now")

        for part, name, _ in there:
            setattr(part, name, away)
        try:
            yield
        finally:
            for part, name, method in there:
                setattr(part, name, method)

    def empty(self) -> None:
        """Make a store in memory forget activations, reports, members and leases."""
        for part, names in (
            (self.store.activations, ("_active", "_reports")),
            (self.store.fleet, ("_beats", "_leases")),
        ):
            for name in names:
                getattr(part, name).clear()

    async def until_members(self, count: int) -> None:
        """Wait until every daemon had time to see so many."""

        async def there() -> bool:
            return len(await self.store.fleet.members()) == count

        await self.bell.until(there)
        await self.until_called("beat", 3 * count)

    async def until_called(self, name: str, times: int) -> None:
        """Wait until a method of the store that rings the bell was called so many times more."""
        goal = self.bell.calls[name] + times
        await self.bell.until(lambda: self.bell.calls[name] >= goal)

    async def until_reconciled(self, rounds: int) -> None:
        """Wait for so many reconciliations of any feeds, counted from now."""
        goal = metric("fmsg_mcpd_reconciles_total") + rounds
        await self.bell.until(lambda: metric("fmsg_mcpd_reconciles_total") >= goal)

    def deliver(self, to: Agent, *, body: str = "hello", pid: int | None = None, sender: str = "@bob@far.test") -> int:
        """A message arrives from another host; its id."""
        return self.host.control.deliver(sender, [to.address], body=body, pid=pid)

    @staticmethod
    async def _end(running: Running) -> None:
        running.task.cancel()
        await asyncio.wait([running.task])


@asynccontextmanager
async def world_of(store: Store) -> AsyncIterator[World]:
    """A world around a store."""
    host = SandboxHost("host.test")
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serve(host))
        http = await stack.enter_async_context(HostHttp(url, deadlines=Deadlines(connect_s=2.0, answer_s=5.0)))
        yield World(host, http, store, stack)
