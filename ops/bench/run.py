"""`fmsg-mcpd bench`: all scenarios, one after another, each on processes of its own; JSON out, a page on request."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import msgspec

from ops import interrupt
from ops.bench.client import CallFailed
from ops.bench.cluster import BenchCluster, running_cluster
from ops.bench.crowd import crowd, crowd_part
from ops.bench.figures import Machine, Run, Scene, write
from ops.bench.hold import hold, one_caller
from ops.bench.report import printed, publish
from ops.bench.sizes import FULL, SIZES, Size
from ops.bench.soak import soak
from ops.bench.start import start
from ops.bench.target import BenchTarget, TooFewCallers, read_keys, remote
from ops.bench.tools import tools
from ops.bench.wake import rate, wake
from ops.processes import STOP_GRACE_S, ChildFailed

Play = Callable[[BenchTarget, Size], Awaitable[Scene]]

PLAYS: dict[str, Play] = {
    "tools": tools,
    "wake": wake,
    "rate": rate,
    "one-caller": one_caller,
    "hold": hold,
    "soak": soak,
}
"""The scenarios of the HTTP front."""

STDIO = "stdio"
"""The scenario that needs no front."""

CROWD = "crowd"
"""The scenario that starts fleets of its own."""

SCENARIOS = (STDIO, *PLAYS, CROWD)
"""All of them, in the order in which they are played."""

LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))


class BenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for."""

    size: str = FULL.name
    scenarios: tuple[str, ...] = ()
    out: str | None = None
    """Where the JSON goes; standard output where None."""
    report: str | None = None
    """Where the page goes, its pictures and the JSON beside it."""
    url: str | None = None
    keys: str | None = None
    pids: tuple[str, ...] = ()
    """``name=pid`` of processes behind ``url`` that run on this machine."""
    anywhere: bool = False
    """Whether a server that is not on this machine may be loaded."""
    part: bool = False
    """Be one fleet of the crowd."""


class BenchRefused(Exception):
    """The bench does not do what was asked. The text says why."""


def bench(options: BenchOptions) -> int:
    """Run; returns the exit status: 0 where every scenario went through, 1 where one failed, 2 where none could."""
    if sys.platform != "linux":
        print("fmsg-mcpd bench: it reads /proc, so it runs on Linux only", file=sys.stderr)
        return 2
    import uvloop

    if options.report is not None and importlib.util.find_spec("matplotlib") is None:
        print("fmsg-mcpd bench: --report draws with matplotlib. Install it: pip install matplotlib.", file=sys.stderr)
        return 2
    if options.part:
        with contextlib.suppress(asyncio.CancelledError):
            interrupt.run(crowd_part(SIZES[options.size]), grace_s=STOP_GRACE_S, loop_factory=uvloop.new_event_loop)
        return 0
    try:
        run = interrupt.run(play(options), grace_s=2 * STOP_GRACE_S, loop_factory=uvloop.new_event_loop)
    except KeyboardInterrupt:
        return 130
    except (BenchRefused, TooFewCallers, CallFailed, ChildFailed, OSError) as error:
        print(f"fmsg-mcpd bench: {error}", file=sys.stderr)
        return 2
    data = write(run)
    if options.out is not None:
        Path(options.out).write_bytes(data)
    elif options.report is None:
        sys.stdout.write(data.decode())
    if options.report is not None:
        publish(run, Path(options.report))
    print(printed(run), file=sys.stderr)
    failures = [f"{scene.name}: {failure}" for scene in run.scenes for failure in scene.failures]
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


async def play(options: BenchOptions, *, say: Callable[[str], None] | None = None) -> Run:
    """Play the scenarios. Raises `BenchRefused`, `TooFewCallers`, and `ChildFailed` where a process does not start."""
    say = say or (lambda text: print(text, file=sys.stderr, flush=True))
    size = SIZES[options.size]
    wanted = options.scenarios or (SCENARIOS if options.url is None else tuple(PLAYS))
    if options.url is not None and not set(wanted) <= PLAYS.keys():
        own = " and ".join(sorted(set(wanted) - PLAYS.keys()))
        raise BenchRefused(f"--only {own}: it starts servers of its own. Leave out --url, or this scenario.")
    began, began_s, load_before = datetime.now(UTC), time.monotonic(), os.getloadavg()[0]
    scenes: list[Scene] = []
    async with contextlib.AsyncExitStack() as stack:
        shared = None
        if options.url is not None:
            shared = await _remote(options)
        elif not size.own_clusters:
            shared = await stack.enter_async_context(running_cluster())
        for name in SCENARIOS:
            if name in wanted:
                scene_s = time.monotonic()
                try:
                    scenes.append(await _played(name, size, shared))
                except (CallFailed, ChildFailed, OSError, aiohttp.ClientError) as error:
                    # The others may still be worth knowing: they take minutes.
                    failed = f"{type(error).__name__}: {error}"
                    scenes.append(Scene(name=name, title=name, how="It did not come to an end.", failures=[failed]))
                say(f"{name}: {time.monotonic() - scene_s:.0f} s")
    at = None if options.url is None else urlsplit(options.url)
    return Run(
        began=began.isoformat(timespec="seconds"),
        took_s=round(time.monotonic() - began_s, 1),
        target="own processes" if at is None else at.netloc.rpartition("@")[2],
        size=size.name,
        machine=Machine(
            cores=os.cpu_count() or 0,
            python=platform.python_version(),
            system=f"{platform.system()} {platform.machine()}",
            load_before=round(load_before, 2),
            load_after=round(os.getloadavg()[0], 2),
        ),
        scenes=scenes,
    )


async def _played(name: str, size: Size, target: BenchTarget | None) -> Scene:
    if name == CROWD:
        return await crowd(size)
    if target is None:
        async with running_cluster() as cluster:
            return await _played(name, size, cluster)
    if name != STDIO:
        return await PLAYS[name](target, size)
    if not isinstance(target, BenchCluster):
        raise TypeError(f"{name} needs processes of our own")  # `play` refuses it before
    key = await target.control("create_key", address="@desk@bench.test")
    return await start(size, {"FMSG_API_URL": target.api_url, "FMSG_API_KEY": key})


async def _remote(options: BenchOptions) -> BenchTarget:
    at = urlsplit(options.url or "")
    if at.scheme != "http" or not at.hostname:
        raise BenchRefused("--url: an http:// URL is needed; the bench speaks no TLS")
    if at.hostname not in LOOPBACK and not options.anywhere:
        raise BenchRefused(f"--url: {at.hostname} is not this machine; --anywhere allows it, and the load is real")
    if options.keys is None:
        raise BenchRefused("--keys: a file of API keys is needed, one a line")
    return await remote(options.url or "", read_keys(Path(options.keys)), _pids(options.pids))


def _pids(words: Sequence[str]) -> dict[str, int]:
    pids: dict[str, int] = {}
    for word in words:
        name, _, number = word.partition("=")
        if not number.isdecimal():
            raise BenchRefused(f"--pid: {word!r} is not NAME=PID")
        pids[name] = int(number)
    return pids
