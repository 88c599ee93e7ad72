"""Scenario: callers come and go for minutes. What is left of them afterwards?"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ops.bench.client import BenchClient, CallFailed
from ops.bench.figures import Scene
from ops.bench.hold import WARM_UP, warm_up
from ops.bench.measure import costs_of, open_files
from ops.bench.sizes import Size
from ops.bench.target import HOST, STORE, BenchCaller, BenchTarget, connect, settle

CHURN_S = (2.0, 20.0)
"""Lengths of the waits."""

CUT_SHARE = 0.3
"""Of the waits end because the client goes away in the middle."""

AWAY_S = (0.5, 10.0)
"""How long a caller is away before it comes back."""

LOOKS = 60
"""Looks at memory and descriptors, evenly over the time."""

MAIL_SHARE = 0.002
"""Of the callers that get a message in each tenth of a second."""


POOLS = frozenset({f"to {HOST}", f"to {STORE}"})
"""Connections that are kept: how many there are at one moment is chance, and for a daemon they are its sockets."""


class _Counts:
    waits = timeouts = messages = cuts = failed = 0


async def soak(target: BenchTarget, size: Size) -> Scene:
    """Churn for a while, then look at what is left."""
    scene = Scene(
        name="soak",
        title="Soak",
        how=(
            f"{size.soak_callers:,} callers for {size.soak_s:g} s: each connects, waits for 2 to 20 s or goes away in "
            "the middle of it, is away for up to 10 s, and comes back; messages come all the time. Memory and "
            "descriptors are read meanwhile, and counted once all are gone."
        ),
    )
    people = await target.callers(max(WARM_UP, size.soak_callers))
    await warm_up(target, people[:WARM_UP])
    await settle(target, longest_s=size.settle_s)
    pids = target.pids()
    files_before = {name: open_files(pid, target.peers()) for name, pid in pids.items()}
    counts = _Counts()
    rng = random.Random(11)
    began_s = time.monotonic()
    until_s = began_s + size.soak_s
    churning = [asyncio.create_task(_churn(target, one, rng, counts, scene, until_s)) for one in people]  # ended below
    keys_at: list[tuple[float, float]] = []
    next_look_s, step_s = began_s, size.soak_s / LOOKS
    while time.monotonic() < until_s:
        chosen = rng.sample(people, max(1, int(len(people) * MAIL_SHARE)))
        await target.deliver(chosen, body="on the way")
        if time.monotonic() >= next_look_s:
            next_look_s += step_s
            minute = (time.monotonic() - began_s) / 60
            for name, cost in costs_of(pids).items():
                scene.series.setdefault(f"{name} memory, MB", []).append((minute, cost.rss_bytes / 1e6))
            if (store := await target.store()) is not None:
                keys_at.append((minute, store.keys))
        await asyncio.sleep(0.1)
    await asyncio.gather(*churning)
    if keys_at:
        scene.series["Redis keys"] = keys_at
    await settle(target, longest_s=size.settle_s)
    _growth(scene, size)
    scene.note("waits", counts.waits, "")
    scene.note("of them ran out", counts.timeouts, "")
    scene.note("of them got a message", counts.messages, "")
    scene.note("of them cut by the client", counts.cuts, "")
    scene.note("of them failed", counts.failed, "")
    await _left_over(scene, target, files_before, len(people))
    return scene


async def _churn(
    target: BenchTarget, person: BenchCaller, rng: random.Random, counts: _Counts, scene: Scene, until_s: float
) -> None:
    await asyncio.sleep(rng.uniform(0.0, min(AWAY_S[1], until_s - time.monotonic())))
    position: str | None = None
    while time.monotonic() < until_s:
        client: BenchClient | None = None
        try:
            client = await connect(target.mcp_url, person.api_key)
            while time.monotonic() < until_s:
                length_s = min(rng.uniform(*CHURN_S), max(1.0, until_s - time.monotonic()))
                arguments: dict[str, Any] = {"timeout_seconds": round(length_s), "settle_seconds": 0}
                if position is not None:
                    arguments["after_id"] = position
                counts.waits += 1
                if rng.random() < CUT_SHARE:
                    await _cut(client, arguments, length_s * rng.random())
                    counts.cuts += 1
                    break
                answer = await client.call("wait_for_message", arguments)
                if answer.is_error:
                    raise CallFailed(answer.text[:200])
                position = answer.content["after_id"]
                counts.timeouts += answer.content["status"] == "timeout"
                counts.messages += answer.content["status"] == "message"
        except (CallFailed, OSError) as failed:
            counts.failed += 1
            if len(scene.failures) < 20:
                scene.failures.append(str(failed))
        finally:
            if client is not None:
                client.close()
        await asyncio.sleep(max(0.0, min(rng.uniform(*AWAY_S), until_s - time.monotonic())))


async def _cut(client: BenchClient, arguments: dict[str, Any], after_s: float) -> None:
    call = client.call("wait_for_message", arguments)
    call.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    await asyncio.wait([call], timeout=after_s)
    client.close()


def _growth(scene: Scene, size: Size) -> None:
    """How much memory grew from a fifth of the time to its end, the first fifth being the warming up."""
    for name in [name for name in scene.series if name.endswith("memory, MB")]:
        points = scene.series[name]
        settled = [mb for minute, mb in points if minute * 60 >= size.soak_s / 5] or [points[-1][1]]
        tenth = max(1, len(settled) // 8)
        first, last = _mean(settled[:tenth]), _mean(settled[-tenth:])
        process = name.removesuffix(" memory, MB")
        scene.note(f"{process} memory after a fifth of the time", first, "MB")
        scene.note(f"{process} memory at the end", last, "MB")
        scene.note(f"{process} growth after the first fifth", (last / first - 1) * 100, "%")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


async def _left_over(scene: Scene, target: BenchTarget, files_before: dict[str, Counter[str]], callers: int) -> None:
    held = await target.held()
    if held is not None:
        scene.note("waits still held", held, "")
    stats = await target.host_stats()
    if stats is not None:
        scene.note("event sockets open (active callers keep theirs)", int(stats["open_sockets"]), "")
    for name, pid in target.pids().items():
        files = open_files(pid, target.peers())
        files.subtract(files_before[name])
        for kind, more in sorted(files.items()):
            if more:
                scene.note(f"{name} descriptors more than before: {kind}", more, "")
        left = sum(more for kind, more in files.items() if kind not in POOLS)
        scene.note(f"{name} descriptors more than before, neither to Redis nor to the host", left, "")
    if (store := await target.store()) is not None:
        scene.note("Redis keys per caller", store.keys / callers, "")
        scene.note("Redis keys without a TTL", store.lasting, "")
