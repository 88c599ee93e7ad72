"""Scenario: as many waiting callers as one machine holds, on several fleets side by side.

A fleet here is a host, a Redis, a daemon and a front, with its load in a process of its own (`crowd_part`): a process
has 20,000 files at most on many machines, and between two addresses there are 28,000 ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from ops.bench.cluster import running_cluster
from ops.bench.figures import Scene
from ops.bench.measure import between, costs_of, total
from ops.bench.sizes import Size
from ops.bench.waiters import Waiters
from ops.processes import STOP_GRACE_S, Child, announce

JOIN_S = 3_600.0
"""Longest that a fleet's callers may take until all of them wait, and from there until all have renewed their wait."""
PART_GRACE_S = 6 * STOP_GRACE_S
"""A fleet that ends stops five processes, one after another."""
LOOK_S = 0.5
"""Between looks whether every wait has run out."""


async def crowd(size: Size) -> Scene:
    """Have all fleets hold their callers at the same time, until every wait has run out and was renewed."""
    wanted = size.crowd_fleets * size.crowd_each
    scene = Scene(
        name="crowd",
        title="A crowd",
        how=(
            f"{wanted:,} callers that no server has heard of wait at the same time, each with one wait of "
            f"{size.crowd_wait_s:g} s on a connection of its own, on {size.crowd_fleets} fleets of a host, a Redis, a "
            "daemon and a front. All stay until each wait has run out and was renewed."
        ),
    )
    async with contextlib.AsyncExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fmsg-crowd-")))
        began_s = time.monotonic()
        parts: list[Child] = []
        for number in range(size.crowd_fleets):
            part = await Child.start(f"part-{number}", "bench", "--size", size.name, "--part", env={}, log_dir=logs)
            stack.push_async_callback(part.stop, PART_GRACE_S)
            parts.append(part)
        held = [(await part.announcement("held", within_s=JOIN_S))[0] for part in parts]
        scene.note("held at the same time, as the fronts count", sum(one["held"] for one in held), "")
        scene.note("until all of them waited", time.monotonic() - began_s, "s")
        await _measure(scene, size, held, wanted)
        ends = [(await part.announcement("renewed", within_s=JOIN_S))[0] for part in parts]
        scene.note("callers whose wait ran out and was renewed", sum(one["renewed"] for one in ends), "")
        scene.note("held at the end", sum(one["held"] for one in ends), "")
        scene.note("connections cut or calls refused", sum(one["failed"] for one in ends), "")
        scene.failures += [failure for one in ends for failure in one["failures"]]
    return scene


async def _measure(scene: Scene, size: Size, held: list[dict[str, Any]], wanted: int) -> None:
    """Memory of all processes of a kind per caller, and what they use of a core while nothing happens but renewals."""
    pids = {f"{name} {number}": pid for number, one in enumerate(held) for name, pid in one["pids"].items()}
    before = costs_of(pids)
    await asyncio.sleep(size.idle_s)
    after = costs_of(pids)
    memory: Counter[str] = Counter()
    for name, cost in after.items():
        memory[name.partition(" ")[0]] += cost.rss_bytes
    for kind, rss_bytes in memory.items():
        scene.note(f"{kind} memory per caller, all of it", rss_bytes / wanted / 1000, "kB")
    spent = total(between(before, after).values())
    scene.note("CPU of all processes while held, renewals included", spent.cpu_s / size.idle_s * 100, "% of a core")


async def crowd_part(size: Size) -> None:
    """One fleet and its callers, until SIGTERM cancels it. It announces what `crowd` asks for."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with running_cluster() as cluster:
        people = await cluster.callers(size.crowd_each)
        waiters = Waiters(cluster, timeout_seconds=size.crowd_wait_s, settle_seconds=0)
        await waiters.join(people)
        announce(held=await cluster.held(), pids=cluster.pids())
        renewed = 0
        while renewed + waiters.failed_count < len(people):
            await asyncio.sleep(LOOK_S)
            renewed = sum(waiter.position is not None for waiter in waiters.all)
        await waiters.held_at_least(len(people))
        announce(renewed=renewed, held=await cluster.held(), failed=waiters.failed_count, failures=waiters.failures[:3])
        await asyncio.Event().wait()
