"""Every process of a small fleet, each of which may be killed or stopped and comes back where it was."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from ledger.embedded import EmbeddedRedis, free_port
from ledger.seal import SealKeys
from ops.processes import Child, ChildFailed

DOMAIN = "chaos.test"
READY_S = 0.25
"""Between questions whether a process is ready."""
RESTART_S = 1.0
"""How soon whatever keeps processes running starts a dead one again."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything there is."""

    fronts: int = 2
    daemons: int = 2
    workers: int = 1


class Part:
    """One process under a supervisor: whatever ends it, it is started again with the same arguments."""

    def __init__(self, name: str, arguments: Sequence[str], env: Mapping[str, str], log_dir: Path) -> None:
        self.name = name
        self.role = name.partition("-")[0]
        self.deaths: list[str] = []
        """The ends that nobody asked for, with what the log said last."""
        self.failed_starts: list[str] = []
        """Starts that came to nothing, while Redis was away."""
        self._arguments = tuple(arguments)
        self._env = dict(env)
        self._log_dir = log_dir
        self._child: Child | None = None
        self._expected = False
        self._back = asyncio.Event()

    @property
    def started(self) -> bool:
        """Whether there ever was a process."""
        return self._child is not None

    @property
    def child(self) -> Child:
        """The process that runs now, or ran last."""
        if self._child is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._child

    async def start(self) -> None:
        """Start it and wait until it says that it serves. Raises `ops.processes.ChildFailed`."""
        self._child = await Child.start(self.name, *self._arguments, env=self._env, log_dir=self._log_dir)
        self._expected = False
        try:
            await self._child.announcement(self.role)
        except BaseException:
            await self._child.stop()
            raise
        self._back.set()

    async def supervise(self) -> None:
        """Start it again each time it ends, for ever."""
        while True:
            await self.child.process.wait()
            self._back.clear()
            if not self._expected:
                self.deaths.append(f"{self.name} ended by itself: {self.child.tail(lines=5)}")
            await self.child.stop()
            while not self._back.is_set():
                await asyncio.sleep(RESTART_S)
                await self._start_again()

    async def _start_again(self) -> None:
        try:
            await self.start()
        except ChildFailed as error:
            # Without Redis a process says so and ends; killed meanwhile it says nothing.
            if not self._expected:
                self.failed_starts.append(str(error))

    async def kill(self, signum: int = signal.SIGKILL) -> None:
        """End it; returns once it is back."""
        self._expected = True
        self._back.clear()
        self.child.kill(signum)
        await self._back.wait()

    def pause(self) -> None:
        """SIGSTOP."""
        self.child.kill(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.child.kill(signal.SIGCONT)

    async def serving(self) -> None:
        """Return once it runs."""
        await self._back.wait()

    async def ready(self) -> None:
        """Return once it runs and says on its side port that it is ready, as whoever restarts processes waits for."""
        await self.serving()
        url = f"http://127.0.0.1:{self.child.announced[-1]['metrics_port']}/readyz"
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
                await asyncio.sleep(READY_S)


class Control:
    """The control surface of the sandbox host, over connections of its own that are kept."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._session = session

    async def call(self, method: str, **arguments: Any) -> Any:
        """Call a method of `sandbox.control.Control`. Raises `aiohttp.ClientError`."""
        async with self._session.post(f"{self.url}/{method}", json=arguments) as answer:
            answer.raise_for_status()
            return (await answer.json())["result"]

    async def insist(self, method: str, **arguments: Any) -> Any:
        """As `call`, again and again while the host cannot be reached. For what may be done twice."""
        while True:
            try:
                return await self.call(method, **arguments)
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
                await asyncio.sleep(0.1)


class ChaosCluster:
    """What runs: a Redis, a sandbox host, fronts, daemons and workers, kept running while the context is open."""

    def __init__(self, redis: EmbeddedRedis, host: Child, api_url: str, control: Control, log_dir: Path) -> None:
        self.redis = redis
        self.host = host
        self.api_url = api_url
        self.control = control
        self.parts: list[Part] = []
        self.urls: list[str] = []
        """The fronts' MCP endpoints, or their proxy's."""
        self.ports: list[int] = []
        """The fronts' ports."""
        self.env: dict[str, str] = {}
        """Of every process."""
        self._log_dir = log_dir
        self._group = asyncio.TaskGroup()
        self._keepers: list[asyncio.Task[None]] = []

    def of(self, role: str) -> list[Part]:
        """The processes of a role."""
        return [part for part in self.parts if part.role == role]

    @property
    def deaths(self) -> list[str]:
        """Processes that ended by themselves."""
        return [death for part in self.parts for death in part.deaths]

    def plan(self, role: str) -> Part:
        """One more process of a role, not started yet."""
        arguments = [role]
        if role == "front":
            self.ports.append(free_port())
            arguments += ["--port", str(self.ports[-1])]
        part = Part(f"{role}-{len(self.of(role))}", arguments, self.env, self._log_dir)
        self.parts.append(part)
        return part

    async def open(self, part: Part) -> None:
        """Start a planned process and keep it running."""
        await part.start()
        self._keepers.append(self._group.create_task(part.supervise()))

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        started = [part for part in self.parts if part.started]
        for part in started:
            part.resume()
            part.child.kill(signal.SIGTERM)
        await asyncio.gather(*(part.child.stop() for part in started))
        await self._group.__aexit__(kind, error, trace)


@contextlib.asynccontextmanager
async def running(
    log_dir: Path,
    *,
    sizes: Sizes = Sizes(),  # noqa: B008 - frozen
    redis: EmbeddedRedis | None = None,
    redis_url: str | None = None,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[ChaosCluster]:
    """Start everything. ``redis_url`` where the ledgers are elsewhere than in ``redis``; ``env`` for every process."""
    async with contextlib.AsyncExitStack() as stack:
        server = redis
        if server is None:
            server = await stack.enter_async_context(EmbeddedRedis(persist=True))
        host = await Child.start("sandbox", "sandbox", "--json", "--domain", DOMAIN, env={}, log_dir=log_dir)
        stack.push_async_callback(host.stop)
        announced = (await host.announcement("url"))[0]
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        cluster = ChaosCluster(server, host, announced["url"], Control(announced["control"], session), log_dir)
        cluster.env = {
            "FMSG_API_URL": cluster.api_url,
            "FMSG_REDIS_URL": redis_url or server.url,
            "FMSG_SEAL_KEY": SealKeys.generate(),
            "FMSG_METRICS_PORT": "0",
            **(env or {}),
        }
        await stack.enter_async_context(cluster)
        counts = {"front": sizes.fronts, "daemon": sizes.daemons, "worker": sizes.workers}
        planned = [cluster.plan(role) for role, count in counts.items() for _ in range(count)]
        cluster.urls += [f"http://127.0.0.1:{port}/mcp" for port in cluster.ports]
        await asyncio.gather(*(cluster.open(part) for part in planned))
        yield cluster
