"""Scenario: one caller holds more and more waits. The host must see but one socket, and one message wakes them all."""

from __future__ import annotations

from ops.bench.crowd import Crowd, since_stamped_ms
from ops.bench.figures import Scene
from ops.bench.hold import LONG_S, WARM_UP, warm_up
from ops.bench.measure import between, total
from ops.bench.sizes import Size
from ops.bench.target import Target, settle


async def one_caller(target: Target, size: Size) -> Scene:
    """Hold the steps' numbers of waits of one caller."""
    scene = Scene(
        name="one caller",
        title="One caller, many waits",
        how="One caller holds more and more waits, each on a connection of its own; one message then wakes them all.",
    )
    people = await target.callers(WARM_UP + 1)
    await warm_up(target, people[:WARM_UP])
    caller = people[WARM_UP]
    crowd = Crowd(target, timeout_seconds=LONG_S, settle_seconds=0)
    await settle(target, longest_s=size.settle_s)
    before = target.costs()
    for step in size.one_caller_steps:
        began, added = target.costs(), step - len(crowd)
        await crowd.join([caller] * added)
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
        crowd.messages.clear()
        await target.deliver([caller], body=f"for all {at}")
        if not await crowd.expect(step, within_s=30.0):
            scene.failures.append(f"{len(crowd.messages)} of {at} waits got the message within 30 s")
        if crowd.messages:
            scene.note_times(f"{at}: push to result", [since_stamped_ms(answer) for _, answer in crowd.messages])
        spent = total(between(waking, target.costs()).values()).cpu_s
        scene.note(f"{at}: CPU per woken wait, all processes", spent / step * 1000, "ms")
    scene.failures += crowd.failures
    scene.note("waits lost", crowd.failed_count, "")
    await crowd.close()
    return scene
