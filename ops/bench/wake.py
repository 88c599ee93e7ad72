"""Scenarios: waits are woken, one at a time, all at once, and as fast as messages can come."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ops.bench.client import BenchClient
from ops.bench.figures import Scene
from ops.bench.hold import LONG_S, WARM_UP, warm_up
from ops.bench.measure import Costs, between, spread, total
from ops.bench.sizes import Size
from ops.bench.target import BenchTarget, connect, connect_all, settle
from ops.bench.waiters import Waiters, since_stamped_ms

WAKE_WITHIN_S = 10.0
"""A wake that takes longer is a failure."""

BREATH_S = 0.01
"""Between a result and the next message. The renewed wait is held by then."""


async def wake(target: BenchTarget, size: Size) -> Scene:
    """Wake waits, one at a time and all at once."""
    waiting = size.wake_waiting
    scene = Scene(
        name="wake",
        title="Waking",
        how=(
            f"{waiting:,} callers wait with settle 0. {size.wakes} times one of them gets a message: first without, "
            "then with `include_thread` on a reply in a thread. The time goes from the stamp the host gives the "
            f"message, right before it pushes it, to the result in the client. Then all get a message at once, "
            f"{size.all_rounds} times. The yardstick is asked for the same answer, or holds as many requests and "
            "releases them."
        ),
    )
    people = await target.callers(max(WARM_UP, waiting))
    await warm_up(target, people[:WARM_UP])
    waiters = Waiters(target, timeout_seconds=LONG_S, settle_seconds=0)
    await waiters.join(people[:waiting])
    await settle(target, longest_s=size.settle_s)
    rng = random.Random(7)
    bare_ms = await _bare_one(target, size.wakes)
    await _one_at_a_time(scene, target, waiters, size, rng, "without thread", bare=bare_ms)
    for waiter in waiters.all:
        waiter.change(include_thread=True)
    # Waits that are held were sent without it: the first wake of each renews it.
    await target.deliver(people[:waiting], body="the first of a thread")
    waiters.messages.clear()
    await waiters.expect(waiting, within_s=30.0)
    await settle(target, longest_s=size.settle_s)
    await _one_at_a_time(scene, target, waiters, size, rng, "with thread", bare=bare_ms)
    for waiter in waiters.all:
        waiter.change(include_thread=False)
    await _all_at_once(scene, target, waiters, size)
    scene.failures += waiters.failures
    scene.note("waits lost", waiters.failed_count, "")
    await waiters.close()
    return scene


async def _one_at_a_time(
    scene: Scene, target: BenchTarget, waiters: Waiters, size: Size, rng: random.Random, how: str, *, bare: float | None
) -> None:
    times_ms: list[float] = []
    host_before, before = await target.host_stats(), target.costs()
    for number in range(size.wakes):
        waiter = rng.choice(waiters.all)
        waiters.messages.clear()
        await target.deliver([waiter.person], body=f"wake {number}")
        if not await waiters.expect(1, within_s=WAKE_WITHIN_S):
            scene.failures.append(f"wake {number} {how}: no result within {WAKE_WITHIN_S:g} s")
            continue
        times_ms.append(since_stamped_ms(waiters.messages[0][1]))
        await asyncio.sleep(BREATH_S)
    spent = between(before, target.costs())
    scene.note_times(f"push to result, one at a time, {how}", times_ms or [float("inf")], bare=bare)
    _note_cpu(scene, f"CPU per wake, one at a time, {how}", spent, size.wakes)
    host_after = await target.host_stats()
    if host_before is not None and host_after is not None:
        requests = _requests_between(host_before, host_after)
        # The daemon's comparisons of lists go on meanwhile; they are no part of a wake.
        asked = {route: count for route, count in requests.items() if route != "list"}
        scene.note(f"upstream requests per wake, {how}", sum(asked.values()) / size.wakes, "")
        for route, count in requests.items():
            scene.note(f"upstream {route} per wake, {how}", count / size.wakes, "")


def _requests_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    """Requests per route that came between two looks at the host's counts."""
    counts = {route: count - before["requests"].get(route, 0) for route, count in sorted(after["requests"].items())}
    return {route: count for route, count in counts.items() if count}


def _note_cpu(scene: Scene, name: str, spent: Costs, count: int) -> None:
    for process, cost in spent.items():
        scene.note(f"{name}: {process}", cost.cpu_s / count * 1000, "ms")
    scene.note(f"{name}: all", total(spent.values()).cpu_s / count * 1000, "ms")


async def _all_at_once(scene: Scene, target: BenchTarget, waiters: Waiters, size: Size) -> None:
    lasts_s: list[float] = []
    each_ms: list[float] = []
    bare = await _bare_all(target, len(waiters), size.all_rounds)
    for number in range(size.all_rounds):
        await settle(target, longest_s=size.settle_s)
        waiters.messages.clear()
        before = target.costs()
        await target.deliver([waiter.person for waiter in waiters.all], body=f"all {number}")
        if not await waiters.expect(len(waiters), within_s=60.0):
            scene.failures.append(f"all at once: {len(waiters.messages)} of {len(waiters)} results within 60 s")
        now_s, ended = time.monotonic(), target.costs()
        if not waiters.messages:
            continue
        times_ms = [since_stamped_ms(answer) for _, answer in waiters.messages]
        first_stamp_ms = max(since_stamped_ms(a) - (a.at_s - now_s) * 1000 for _, a in waiters.messages)
        last_at_s = max(answer.at_s for _, answer in waiters.messages)
        lasts_s.append((first_stamp_ms / 1000) + (last_at_s - now_s))
        spent = between(before, ended)
        each_ms.append(total(spent.values()).cpu_s / len(waiters) * 1000)
        if number == size.all_rounds - 1:
            _note_cpu(scene, "CPU per wake, all at once, last round", spent, len(waiters))
            scene.note_times("push to result, all at once", times_ms)
            scene.series["all at once: share answered, by ms after the push"] = [
                (time_ms, (at + 1) / len(times_ms)) for at, time_ms in enumerate(sorted(times_ms))
            ]
    if lasts_s:
        scene.note_rounds("all at once: from the first push to the last result", lasts_s, "s", bare=bare)
        scene.note_rounds("all at once: CPU per wake, all processes", each_ms, "ms")


async def _bare_one(target: BenchTarget, count: int) -> float | None:
    if target.bare_url is None:
        return None
    client = await connect(target.bare_url, "-", path="/answer")
    times_ms: list[float] = []
    for _ in range(count):
        answer = await client.call("answer", {})
        times_ms.append((answer.at_s - client.sent_s) * 1000)
    client.close()
    return spread(times_ms).p50


async def _bare_all(target: BenchTarget, count: int, rounds: int) -> list[float]:
    if target.bare_url is None:
        return []
    clients: Sequence[BenchClient] = await connect_all(target.bare_url, ["-"] * count, path="/hold")
    releasing = await connect(target.bare_url, "-", path="/release")
    lasts_s: list[float] = []
    for _ in range(rounds):
        calls = [client.call("hold", {}) for client in clients]
        await asyncio.sleep(min(1.0, count / 1_000))
        began_s = time.monotonic()
        await releasing.call("release", {})
        answers = await asyncio.gather(*calls)
        lasts_s.append(max(answer.at_s for answer in answers) - began_s)
    for client in [*clients, releasing]:
        client.close()
    return lasts_s


async def rate(target: BenchTarget, size: Size) -> Scene:
    """As many messages as get through, each a wake and a renewed wait."""
    scene = Scene(
        name="rate",
        title="Message rate",
        how=(
            f"{size.rate_callers} callers wait. Each gets its next message as soon as it has the result of the one "
            f"before, for {size.rate_s:g} s: how many messages get through, and what one costs at full load."
        ),
    )
    people = await target.callers(max(WARM_UP, size.rate_callers))
    await warm_up(target, people[:WARM_UP])
    waiters = Waiters(target, timeout_seconds=LONG_S, settle_seconds=0)
    await waiters.join(people[: size.rate_callers])
    await settle(target, longest_s=size.settle_s)
    times_ms: list[float] = []
    before, began_s = target.costs(), time.monotonic()
    owed = [waiter.person for waiter in waiters.all]
    while time.monotonic() < began_s + size.rate_s:
        if owed:
            people_now, owed = owed, []
            await target.deliver(people_now, body="on and on")
        if not await waiters.expect(1, within_s=WAKE_WITHIN_S):
            scene.failures.append(f"nothing came for {WAKE_WITHIN_S:g} s")
            break
        for waiter, answer in waiters.messages:
            owed.append(waiter.person)
            times_ms.append(since_stamped_ms(answer))
        waiters.messages.clear()
    took_s = time.monotonic() - began_s
    spent = between(before, target.costs())
    if times_ms:
        scene.note("messages per second", len(times_ms) / took_s, "/s")
        scene.note_times("push to result under full load", times_ms)
        _note_cpu(scene, "CPU per message", spent, len(times_ms))
    scene.failures += waiters.failures
    scene.note("waits lost", waiters.failed_count, "")
    await waiters.close()
    return scene
