"""`python -m tests.fleet.dashboard`: a fleet under load and faults, and the Grafana dashboard as it shows them."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path

import aiohttp
import msgspec
import uvloop

from ledger.embedded import free_port
from tests.chaos.calls import CallError, Client
from tests.chaos.cluster import ChaosCluster, Sizes, running
from tests.chaos.mail import Mail, Mix
from tests.chaos.scenario import to_stderr
from tests.fleet.drawing import Mark, Span, draw
from tests.fleet.panels import Shown, panels, show
from tests.fleet.play import Plan, agents_of
from tests.fleet.prometheus import INSTALL as NO_PROMETHEUS
from tests.fleet.prometheus import Prometheus, find_prometheus, watching
from tests.fleet.proxy import INSTALL as NO_PROXY
from tests.fleet.proxy import find_proxy, in_front_of

SIZES = Sizes(fronts=2, daemons=2, workers=1)
EVERY_S, STEP_S = 5.0, 3.0
"""How often Prometheus looks, and what is between two points of a line."""
ALERTS = 'ALERTS{alertname=~"Fmsg.*",alertstate="firing"}'
"""The dashboard's annotations."""
TOOLS = ("list_messages", "list_sent", "whoami")
"""What agents call now and then besides waiting."""


class FaultyRun:
    """What the faults and the agents need: the fleet, a client, and the keys of the callers."""

    def __init__(self, cluster: ChaosCluster, client: Client, keys: Mapping[str, str], rng: random.Random) -> None:
        self.cluster = cluster
        self.client = client
        self.addresses = list(keys)
        self.keys = keys
        self.rng = rng

    async def call(self, tool: str, **arguments: object) -> None:
        """A tool call of somebody's; an error is what an agent would see, and nothing here."""
        address = self.rng.choice(self.addresses)
        with contextlib.suppress(CallError):
            await self.client.call(self.cluster.urls[0], self.keys[address], tool, arguments, patience_s=20.0)


async def events_lost(run: FaultyRun) -> None:
    """The host loses events."""
    await run.cluster.control.insist("lose_events", times=30)


async def daemon_killed(run: FaultyRun) -> None:
    """kill -9 of a daemon."""
    await run.cluster.of("daemon")[0].kill()


async def host_fails(run: FaultyRun) -> None:
    """The host cuts all sockets, refuses new ones and fails."""
    control = run.cluster.control
    await control.insist("fail_next", route="ws", times=150, status=503)
    await control.insist("fail_next", route="list", times=60, status=502, html=True)
    await control.insist("drop_sockets", close_frame=False)


async def redis_killed(run: FaultyRun) -> None:
    """kill -9 of Redis, back with its data after five seconds."""
    run.cluster.redis.kill()
    await asyncio.sleep(5.0)
    await run.cluster.redis.restart_async(empty=False)


async def daemon_stopped(run: FaultyRun) -> None:
    """A daemon hangs for longer than its heartbeat holds."""
    part = run.cluster.of("daemon")[1]
    part.pause()
    try:
        await asyncio.sleep(14.0)
    finally:
        part.resume()


async def strangers_come(run: FaultyRun) -> None:
    """Clients come with wrong keys, no key, a wrong host name, ids of nothing."""
    url, body = run.cluster.urls[0], {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"Accept": "application/json, text/event-stream", "Authorization": "Bearer fmsgk_nobody_nothing"}
    async with aiohttp.ClientSession() as session:
        for number in range(60):
            for headers in (
                {**accept, "Authorization": f"Bearer fmsgk_x{number}_y"},
                {**accept, "Host": "else.test"},
                {},
            ):
                async with session.post(url, json=body, headers=headers) as answer:
                    await answer.read()
            await run.call("get_message", id=str(900_000 + number))
            await run.call("wait_for_message", after_id=str(number + 1), timeout_seconds=1)
            await asyncio.sleep(0.1)


async def sends_fail(run: FaultyRun) -> None:
    """Sends fail, and their drafts cannot be deleted: left for the worker."""
    for route in ("send", "delete"):
        await run.cluster.control.insist("fail_next", route=route, times=20, status=500)
    for number in range(20):
        await run.call(
            "send_message", to=[run.addresses[0]], topic=f"unsure {number}", body="once", idempotency_key=str(number)
        )


FAULTS: tuple[tuple[float, Callable[[FaultyRun], Awaitable[None]]], ...] = (
    (0.20, events_lost),
    (0.30, daemon_killed),
    (0.43, host_fails),
    (0.55, sends_fail),
    (0.61, redis_killed),
    (0.70, strangers_come),
    (0.78, daemon_stopped),
)
"""What goes wrong, and when, as a share of the run."""


class Taken(msgspec.Struct, kw_only=True):
    """What the run showed."""

    callers: int
    messages: int
    span: Span
    shown: list[Shown]
    marks: list[Mark]
    alerts: list[Mark]

    @property
    def empty(self) -> list[str]:
        """The panels on which nothing is to be seen."""
        return [one.panel.title for one in self.shown if one.panel.kind != "row" and not one.filled]


@contextlib.asynccontextmanager
async def fleet(directory: Path) -> AsyncIterator[tuple[ChaosCluster, Prometheus]]:
    """Fronts behind a proxy, daemons, a worker, Redis, a host, and a Prometheus that looks at them."""
    env = {"FMSG_LOG_LEVEL": "warning", "FMSG_RECONCILE_SECONDS": "15", "FMSG_MAX_CONNECTS_PER_SECOND": "30"}
    nobody = Sizes(fronts=0, daemons=0, workers=0)
    targets: dict[str, dict[str, str]] = {}
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running(directory, sizes=nobody, env=env))
        for role, count in (("front", SIZES.fronts), ("daemon", SIZES.daemons), ("worker", SIZES.workers)):
            for _ in range(count):
                # A port of its own, that stays the same when it is started again.
                cluster.env["FMSG_METRICS_PORT"] = str(free_port())
                part = cluster.plan(role)
                targets.setdefault(f"fmsg-{role}", {})[part.name] = f"127.0.0.1:{cluster.env['FMSG_METRICS_PORT']}"
        await asyncio.gather(*(cluster.open(part) for part in cluster.parts))
        cluster.urls[:] = [await stack.enter_async_context(in_front_of(cluster.ports, directory / "proxy"))]
        yield cluster, await stack.enter_async_context(watching(targets, directory / "prometheus", every_s=EVERY_S))


async def run(
    directory: Path, *, callers: int, seconds: float, rate: float, seed: int, tell: Callable[[str], None]
) -> Taken:
    """The whole of it, so many ``seconds`` of load with ``rate`` messages a second."""
    rng = random.Random(seed)
    async with fleet(directory) as (cluster, source), Client() as client:
        tell(f"the fleet runs behind {cluster.urls[0]}; Prometheus: {source.url}")
        agents = await agents_of(cluster, client, Plan(callers=callers, seed=seed), rng)
        run = FaultyRun(cluster, client, agents.keys, rng)
        mail = Mail(cluster, run.addresses, agents.keys, client, rng, mix=Mix(burst=0.0, draft_waits_s=5.0))
        marks: list[Mark] = []
        start_s = time.time()
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(_come(one.run, rng.uniform(0.0, 0.12 * seconds))) for one in agents.consumers]
            sending = group.create_task(mail.run(rate=rate))
            busy = group.create_task(_busy(run))
            faults = [
                group.create_task(_strike(fault, share * seconds, run, marks, start_s, tell)) for share, fault in FAULTS
            ]
            await asyncio.sleep(seconds)
            await asyncio.gather(*faults)
            steps = int((time.time() - start_s) // STEP_S)
            span = Span(start_s, start_s + steps * STEP_S, STEP_S)
            shown = [
                await show(one, source, start_s=span.start_s, end_s=span.end_s, step_s=span.step_s) for one in panels()
            ]
            alerts = await _alerts(source, span)
            for name, error in (await source.scraped()).items():
                if error:
                    tell(f"{name} is not scraped: {error}")
            mail.stop()
            for task in (*waiting, busy, sending):
                task.cancel()
        marks.sort(key=lambda mark: mark.at_s)
        lettered = [msgspec.structs.replace(mark, letter=chr(ord("A") + number)) for number, mark in enumerate(marks)]
        return Taken(callers=callers, messages=mail.arrivals, span=span, shown=shown, marks=lettered, alerts=alerts)


async def _come(call: Callable[[], Awaitable[None]], after_s: float) -> None:
    await asyncio.sleep(after_s)
    await call()


async def _busy(run: FaultyRun) -> None:
    while True:
        await run.call(run.rng.choice(TOOLS))
        await asyncio.sleep(run.rng.uniform(0.1, 0.4))


async def _strike(
    fault: Callable[[FaultyRun], Awaitable[None]],
    after_s: float,
    run: FaultyRun,
    marks: list[Mark],
    start_s: float,
    tell: Callable[[str], None],
) -> None:
    await asyncio.sleep(after_s)
    said = (fault.__doc__ or fault.__name__).strip().rstrip(".")
    marks.append(Mark(time.time() - start_s, said))
    tell(f"  {time.time() - start_s:.0f} s: {said}")
    await fault(run)


async def _alerts(source: Prometheus, span: Span) -> list[Mark]:
    """When each alert began to fire."""
    found = await source.over(ALERTS, start_s=span.start_s, end_s=span.end_s, step_s=span.step_s)
    began: dict[str, float] = {}
    for series in found:
        name, at_s = series.labels["alertname"], series.samples[0][0] - span.start_s
        began[name] = min(at_s, began.get(name, at_s))
    return [Mark(at_s, f"{name} fires") for name, at_s in sorted(began.items(), key=lambda one: one[1])]


def picture(taken: Taken) -> str:
    """The dashboard as an SVG."""
    notes = [
        f"{taken.callers} agents waiting at {SIZES.fronts} fronts behind a proxy, {SIZES.daemons} daemons, "
        f"{SIZES.workers} worker, Redis; {taken.messages} messages arrived.",
        f"Prometheus looked every {EVERY_S:g} s. The letters mark what was done to the fleet:",
    ]
    marks = [*taken.marks, *taken.alerts]
    return draw(taken.shown, taken.span, title="fmsg MCP server", notes=notes, marks=marks)


def lines(taken: Taken) -> Iterator[str]:
    """What came of it, panel by panel."""
    for one in taken.shown:
        if one.panel.kind == "row":
            yield one.panel.title
            continue
        names = ", ".join(dict.fromkeys(line.name for line in one.lines if line.name))
        yield f"  {'filled' if one.filled else 'EMPTY '}  {one.panel.title}{f': {names}' if names else ''}"
    for mark in taken.alerts:
        yield f"{mark.at_s:.0f} s: {mark.text}"
    count = sum(one.panel.kind != "row" for one in taken.shown)
    yield f"{count - len(taken.empty)} of {count} panels filled" + (f"; empty: {taken.empty}" if taken.empty else "")


def main(argv: Sequence[str] | None = None) -> int:
    """Run, draw and report; returns 0 if there is something to be seen on every panel."""
    options = _parser().parse_args(argv)
    for missing, found in ((NO_PROXY, find_proxy()), (NO_PROMETHEUS, find_prometheus())):
        if found is None:
            print(missing, file=sys.stderr)
            return 2
    with tempfile.TemporaryDirectory(prefix="fmsg-dashboard-") as scratch:
        directory = Path(options.keep_logs or scratch)
        directory.mkdir(parents=True, exist_ok=True)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            taken = runner.run(
                run(
                    directory,
                    callers=options.callers,
                    seconds=options.seconds,
                    rate=options.rate,
                    seed=options.seed,
                    tell=to_stderr,
                )
            )
    Path(options.svg).write_text(picture(taken))
    print("\n".join(lines(taken)))
    return 1 if taken.empty else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet.dashboard", description=__doc__)
    parser.add_argument("--callers", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--rate", type=float, default=10.0, help="messages a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--svg", default="docs/dashboard.svg", metavar="FILE", help="where the picture goes")
    parser.add_argument("--keep-logs", metavar="DIR", help="keep logs and Prometheus' data here")
    return parser


if __name__ == "__main__":
    sys.exit(main())
