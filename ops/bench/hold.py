"""Scenarios: more and more callers wait, and one caller holds more and more waits. What does one of them cost?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from ops.bench.client import BenchAnswer, BenchClient, CallFailed
from ops.bench.figures import Scene
from ops.bench.measure import NOTHING, Cost, Costs, between, cost_of, total
from ops.bench.sizes import Size
from ops.bench.target import BenchCaller, BenchTarget, connect, connect_all, settle
from ops.bench.waiters import Waiters, since_stamped_ms

LONG_S = 230.0
"""The longest wait a server holds by default; the bench renews it where its work takes longer."""

WARM_UP = 8
"""Callers that wait before anything is measured, so that what is loaded once is loaded."""


async def warm_up(target: BenchTarget, people: Sequence[BenchCaller]) -> None:
    """Have the server load and make what it does but once."""
    waiters = Waiters(target, timeout_seconds=30, settle_seconds=0)
    await waiters.join(people)
    await target.deliver(people, body="warm")
    came = await waiters.expect(len(people), within_s=30.0)
    failures = waiters.failures
    await waiters.close()
    if failures or not came:
        raise CallFailed(f"the target does not serve: {failures[:1] or 'no message came within 30 s'}")


async def hold(target: BenchTarget, size: Size) -> Scene:
    """Hold the steps' numbers of callers with one wait each."""
    most = size.hold_steps[-1]
    scene = Scene(
        name="hold",
        title="Waiting callers",
        how=(
            f"{most:,} callers the server has never heard of wait in steps, each with one wait on a connection of its "
            f"own. After each step, once everything has settled, memory and {size.idle_s:g} s of idle CPU are read; "
            "what the callers that waited before cost meanwhile is taken off the CPU of the new ones. "
            f"Then all go away, come back as known callers with waits of {size.renew_s:g} s, and stay until every wait "
            "has run out and was renewed."
        ),
    )
    people = await target.callers(WARM_UP + most)
    await warm_up(target, people[:WARM_UP])
    await settle(target, longest_s=size.settle_s)
    people = people[WARM_UP:]
    bare = await _bare(target, size)
    before, stored = target.costs(), await target.store()
    waiters = Waiters(target, timeout_seconds=LONG_S, settle_seconds=0)
    for step in size.hold_steps:
        await _step(scene, target, waiters, people[len(waiters) : step], size, before=before, bare=bare)
        after = await target.store()
        if stored is not None and after is not None:
            each_kb = (after.used_bytes - stored.used_bytes) / step / 1000
            scene.note(f"{step:,}: Redis data per caller", each_kb, "kB")
            scene.series.setdefault("Redis data per caller, kB", []).append((step, each_kb))
    await _count(scene, target, len(waiters))
    scene.failures += waiters.failures
    scene.note("waits lost while growing", waiters.failed_count, "")
    await waiters.close()
    await _renewals(scene, target, people[:most], size, bare=bare)
    return scene


async def _step(
    scene: Scene,
    target: BenchTarget,
    waiters: Waiters,
    more: Sequence[BenchCaller],
    size: Size,
    *,
    before: Costs,
    bare: Costs,
) -> None:
    began, began_s = target.costs(), time.monotonic()
    await waiters.join(more)
    took_s = time.monotonic() - began_s
    await settle(target, longest_s=size.settle_s)
    held, over_s = len(waiters), time.monotonic() - began_s
    settled = target.costs()
    spent, grown = between(began, settled), between(before, settled)
    idle = {name: _idle_share(scene, name) for name in spent}
    at = f"{held:,}"
    yard = bare.get(at, NOTHING)
    for name, cost in spent.items():
        # The callers that waited before cost something meanwhile.
        each_ms = max(0.0, cost.cpu_s - idle[name] * over_s) / len(more) * 1000
        scene.note(
            f"{at}: {name} CPU per new caller", each_ms, "ms", bare=yard.cpu_s * 1000 if name == "front" else None
        )
        scene.series.setdefault(f"{name} CPU per new caller, ms", []).append((held, each_ms))
        each_kib = grown[name].rss_bytes / held / 1000
        scene.note(
            f"{at}: {name} memory per caller",
            each_kib,
            "kB",
            bare=yard.rss_bytes / 1000 if name == "front" else None,
        )
        scene.series.setdefault(f"{name} memory per caller, kB", []).append((held, each_kib))
        scene.note(f"{at}: {name} memory", settled[name].rss_bytes / 1e6, "MB")
    scene.note(f"{at}: new callers per second", len(more) / took_s, "/s")
    await _idle(scene, target, size, at=at)


def _idle_share(scene: Scene, name: str) -> float:
    """The part of a core that a process used when idle after the step before."""
    measured = [figure for key, figure in scene.figures.items() if key.endswith(f": {name} idle CPU")]
    return measured[-1].value / 100 if measured else 0.0


async def _idle(scene: Scene, target: BenchTarget, size: Size, *, at: str) -> None:
    rounds: list[dict[str, Cost]] = []
    for _ in range(4):
        before = target.costs()
        await asyncio.sleep(size.idle_s / 4)
        rounds.append(between(before, target.costs()))
    for name in rounds[0]:
        shares = [one[name].cpu_s / (size.idle_s / 4) * 100 for one in rounds]
        scene.note_rounds(f"{at}: {name} idle CPU", shares, "% of a core")
    shares = [total(one.values()).cpu_s / (size.idle_s / 4) * 100 for one in rounds]
    scene.note_rounds(f"{at}: idle CPU, all processes", shares, "% of a core")
    scene.series.setdefault("idle CPU of all processes, % of a core", []).append(
        (float(at.replace(",", "")), sum(shares) / len(shares))
    )


async def _renewals(
    scene: Scene, target: BenchTarget, people: Sequence[BenchCaller], size: Size, *, bare: Costs
) -> None:
    await settle(target, longest_s=size.settle_s)
    count, at = len(people), f"{len(people):,}"
    scene.note("front memory after all went away", target.costs().get("front", NOTHING).rss_bytes / 1e6, "MB")
    before = target.costs()
    waiters = Waiters(target, timeout_seconds=size.renew_s, settle_seconds=0)
    began_s = time.monotonic()
    await waiters.join(people)
    took_s = time.monotonic() - began_s
    ended_before = waiters.timeouts
    joined = between(before, target.costs())
    yard = bare.get(at, NOTHING)
    for name, cost in joined.items():
        each_ms = cost.cpu_s / count * 1000
        scene.note(
            f"{at}: {name} CPU per known caller", each_ms, "ms", bare=yard.cpu_s * 1000 if name == "front" else None
        )
    scene.note(f"{at}: known callers per second", count / took_s, "/s")
    scene.note("waits that ran out while the known callers came", ended_before, "")
    renewing = target.costs()
    until_s = began_s + took_s + 2 * size.renew_s
    await waiters.ended_at_least(count, within_s=until_s - time.monotonic())
    await waiters.held_at_least(count)
    renewed = between(renewing, target.costs())
    for name, cost in renewed.items():
        each_ms = cost.cpu_s / max(1, waiters.timeouts) * 1000
        scene.note(f"{at}: {name} CPU per minute-long wait, its end and renewal", each_ms, "ms")
    scene.note("waits that ran out and were renewed", waiters.timeouts, "")
    scene.note("connections cut or calls refused", waiters.failed_count, "")
    await _count(scene, target, count)
    scene.failures += waiters.failures
    await waiters.close()


async def _count(scene: Scene, target: BenchTarget, count: int) -> None:
    held = await target.held()
    if held is not None:
        scene.note(f"held at the end of {count:,} (as the front counts)", held, "")
    stats = await target.host_stats()
    if stats is not None:
        per_caller = max(stats["sockets"].values(), default=0)
        scene.note("upstream sockets per caller, most", per_caller, "")
        scene.note("upstream sockets", stats["open_sockets"], "")


async def _bare(target: BenchTarget, size: Size) -> dict[str, Cost]:
    """What one held request costs the yardstick, by number held: memory, and CPU to take it and to answer it."""
    children = getattr(target, "children", {})
    if target.bare_url is None or "bare" not in children:
        return {}
    pid = children["bare"].pid
    found: dict[str, Cost] = {}
    clients: list[BenchClient] = []
    calls: list[asyncio.Future[BenchAnswer]] = []
    first = cost_of(pid)
    for step in size.hold_steps:
        before = cost_of(pid)
        fresh = await connect_all(target.bare_url, ["-"] * (step - len(clients)), path="/hold")
        clients += fresh
        fresh_calls = [client.call("hold", {}) for client in fresh]
        calls += fresh_calls
        await asyncio.sleep(min(1.0, size.idle_s) + step / 5_000)
        after = cost_of(pid)
        if any(call.done() for call in fresh_calls):
            raise RuntimeError("the yardstick does not hold its requests")
        found[f"{step:,}"] = Cost(
            rss_bytes=(after.rss_bytes - first.rss_bytes) // step, cpu_s=(after.cpu_s - before.cpu_s) / len(fresh)
        )
    releasing = await connect(target.bare_url, "-", path="/release")
    await releasing.call("release", {})
    await asyncio.gather(*calls)
    for client in [*clients, releasing]:
        client.close()
    return found


async def one_caller(target: BenchTarget, size: Size) -> Scene:
    """Hold the steps' numbers of waits of one caller."""
    scene = Scene(
        name="one caller",
        title="One caller, many waits",
        how="One caller holds more and more waits, each on a connection of its own; one message then wakes them all.",
    )
    people = await target.callers(WARM_UP + 1)
    await warm_up(target, people[:WARM_UP])
    caller = people[WARM_UP]
    waiters = Waiters(target, timeout_seconds=LONG_S, settle_seconds=0)
    await settle(target, longest_s=size.settle_s)
    before = target.costs()
    for step in size.one_caller_steps:
        began, added = target.costs(), step - len(waiters)
        await waiters.join([caller] * added)
        await settle(target, longest_s=size.settle_s)
        settled = target.costs()
        at = f"{step:,}"
        front = between(before, settled).get("front")
        if front is not None and step > 1:
            scene.note(f"{at}: front memory per wait", front.rss_bytes / step / 1000, "kB")
        spent = total(between(began, settled).values()).cpu_s
        scene.note(f"{at}: CPU per wait, all processes", spent / added * 1000, "ms")
        stats = await target.host_stats()
        if stats is not None:
            sockets = next((n for who, n in stats["sockets"].items() if who.lower() == caller.address), 0)
            scene.note(f"{at}: upstream sockets of the caller", sockets, "")
        waking = target.costs()
        waiters.messages.clear()
        await target.deliver([caller], body=f"for all {at}")
        if not await waiters.expect(step, within_s=30.0):
            scene.failures.append(f"{len(waiters.messages)} of {at} waits got the message within 30 s")
        if waiters.messages:
            scene.note_times(f"{at}: push to result", [since_stamped_ms(answer) for _, answer in waiters.messages])
        spent = total(between(waking, target.costs()).values()).cpu_s
        scene.note(f"{at}: CPU per woken wait, all processes", spent / step * 1000, "ms")
    scene.failures += waiters.failures
    scene.note("waits lost", waiters.failed_count, "")
    await waiters.close()
    return scene
