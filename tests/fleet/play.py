"""The fleet under load, one scenario after another, and what each of them cost."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec

from ledger.embedded import EmbeddedRedis
from tests import redis_setups
from tests.chaos.calls import Client
from tests.chaos.cluster import DOMAIN, ChaosCluster, Sizes, running
from tests.chaos.consumers import Consumer, Habits, Record
from tests.chaos.mail import Mail, Mix
from tests.chaos.truth import truth
from tests.chaos.verdict import Interval, Known, Reader, Verdict, audit, missing
from tests.fleet.isolation import Isolation, isolation
from tests.fleet.proxy import in_front_of
from tests.fleet.scenarios import SCENARIOS, Fleet, Pace, Scenario, Shape
from tests.fleet.sockets import SocketCount, SocketGaps

HABITS = Habits(timeouts_s=(50,), settles_s=(0, 3), hangs_up=0.0, goes_away=0.0, include_thread=0.0)
"""The defaults of the product, and agents that do nothing but wait."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a run. Times in seconds."""

    callers: int = 2000
    messages_per_s: float = 20.0
    seed: int = 1
    scenarios: tuple[Scenario, ...] = SCENARIOS
    sizes: Sizes = Sizes(fronts=3, daemons=3, workers=2)
    settle_s: float = 240.0
    """Within so long of a scenario every caller has one socket again."""
    drain_s: float = 180.0
    connects_per_s: float = 50.0
    """`FMSG_MAX_CONNECTS_PER_SECOND`."""
    pace: Pace = Pace()
    mix: Mix = Mix(burst=0.0)
    isolation_calls: int = 0
    """Calls of two callers with each other's ids, in the end."""
    env: dict[str, str] = {}
    """Further settings of every process."""


class Result(msgspec.Struct, kw_only=True):
    """What a scenario cost."""

    scenario: Scenario
    start_s: float = 0.0
    end_s: float = 0.0
    calls: int = 0
    dropped: int = 0
    failed: Counter[str] = msgspec.field(default_factory=Counter)
    gaps: SocketGaps = msgspec.field(default_factory=SocketGaps)
    settled: bool = False
    peak_connects_per_s: int = 0
    lost: list[tuple[str, int]] = []
    duplicates: list[tuple[str, int]] = []
    messages: int = 0
    worst_delay_s: float = 0.0
    repeated_unmarked: int = 0
    """Where Redis was away and with it the marks."""

    def problems(self, plan: Plan) -> list[str]:
        """What must not be."""
        found = []
        if self.lost:
            found.append(f"{len(self.lost)} lost")
        if self.duplicates:
            found.append(f"{len(self.duplicates)} unmarked duplicates")
        if self.scenario.rolling and self.failed:
            found.append(f"{sum(self.failed.values())} calls failed")
        if not self.settled:
            found.append("not everybody had one socket again in time")
        if self.peak_connects_per_s > plan.connects_per_s:
            found.append(f"{self.peak_connects_per_s} connects in a second")
        return found


class Outcome(msgspec.Struct, kw_only=True):
    """All of it."""

    plan: Plan
    results: list[Result]
    verdicts: dict[Shape, Verdict]
    deaths: list[str]
    isolation: Isolation | None = None

    @property
    def good(self) -> bool:
        """Whether nothing happened that must not."""
        return (
            all(verdict.good for verdict in self.verdicts.values())
            and not any(result.problems(self.plan) for result in self.results)
            and not self.deaths
            and not (self.isolation and self.isolation.leaks)
        )


class Agents:
    """Callers in a loop, and what they wrote down."""

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}
        self.readers: list[Reader] = []
        self.consumers: list[Consumer] = []
        self.record = Record()


async def agents_of(cluster: ChaosCluster, client: Client, plan: Plan, rng: random.Random) -> Agents:
    """One consumer for each caller; every fourth lets the server keep its position."""
    found = Agents()
    for number in range(plan.callers):
        address = f"@caller{number}@{DOMAIN}"
        found.keys[address] = str(await cluster.control.call("create_key", address=address))
        subscribes = number % 4 == 3
        reader = Reader(name=address, address=address, kind="acknowledging" if subscribes else "plain")
        found.readers.append(reader)
        found.consumers.append(
            Consumer(
                reader,
                found.keys[address],
                client,
                found.record,
                urls=lambda: cluster.urls,
                rng=random.Random(rng.getrandbits(64)),
                habits=HABITS,
                subscription="main" if subscribes else None,
            )
        )
    return found


@contextlib.asynccontextmanager
async def shaped(shape: Shape, plan: Plan, log_dir: Path) -> AsyncIterator[Fleet]:
    """The fleet on a Redis of this shape, its fronts behind a proxy."""
    env = {
        "FMSG_MAX_CONNECTS_PER_SECOND": str(plan.connects_per_s),
        "FMSG_MCP_DRAIN_NOTICE_SECONDS": str(plan.pace.notice_s),
        "FMSG_LOG_LEVEL": "warning",
        **plan.env,
    }
    async with contextlib.AsyncExitStack() as stack:
        queue = await stack.enter_async_context(EmbeddedRedis(persist=True))
        servers: Sequence[EmbeddedRedis] = [queue]
        url = queue.url
        if shape == "sentinel":
            setup = await stack.enter_async_context(redis_setups.watched())
            servers, url = [setup.primary, setup.replica], setup.url
        elif shape == "cluster":
            servers = await stack.enter_async_context(redis_setups.cluster())
            url = servers[0].url.replace("redis://", "redis+cluster://").removesuffix("/0")
        if shape == "cluster":
            env["FMSG_QUEUE_REDIS_URL"] = queue.url
        cluster = await stack.enter_async_context(
            running(log_dir, sizes=plan.sizes, redis=queue, redis_url=url, env=env)
        )
        cluster.urls[:] = [
            await stack.enter_async_context(in_front_of(cluster.ports, log_dir / "proxy", check_s=plan.pace.check_s))
        ]
        yield Fleet(cluster, servers, plan.pace)


async def run(plan: Plan, log_dir: Path, *, tell: Callable[[str], None] = lambda _: None) -> Outcome:
    """Every scenario of the plan, each shape of Redis with a fleet of its own."""
    outcome = Outcome(plan=plan, results=[], verdicts={}, deaths=[])
    for shape in dict.fromkeys(scenario.shape for scenario in plan.scenarios):
        directory = log_dir / shape
        directory.mkdir(parents=True, exist_ok=True)
        tell(f"a fleet on {shape} Redis")
        async with shaped(shape, plan, directory) as fleet, Client() as client:
            await _play(shape, fleet, client, outcome, tell)
            if plan.isolation_calls and outcome.isolation is None:
                tell(f"  {plan.isolation_calls} calls with the ids of another")
                outcome.isolation = await isolation(fleet.cluster, client, calls=plan.isolation_calls)
            outcome.deaths += fleet.cluster.deaths
    return outcome


async def _play(shape: Shape, fleet: Fleet, client: Client, outcome: Outcome, tell: Callable[[str], None]) -> None:
    plan = outcome.plan
    rng = random.Random(plan.seed)
    cluster = fleet.cluster
    agents = await agents_of(cluster, client, plan, rng)
    sockets = SocketCount(cluster.control, agents.keys)
    mail = Mail(cluster, list(agents.keys), agents.keys, client, random.Random(rng.getrandbits(64)), mix=plan.mix)
    results: list[Result] = []
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(sockets.run())
        waiting = []
        for consumer in agents.consumers:
            waiting.append(group.create_task(consumer.run()))
            # Agents do not all start in the same millisecond.
            await asyncio.sleep(1.0 / (2.0 * plan.connects_per_s))
        began = time.monotonic()
        settled = await sockets.everybody(within_s=plan.settle_s)
        tell(f"  {plan.callers} callers, all with a socket: {settled}, after {time.monotonic() - began:.1f} s more")
        sending = group.create_task(mail.run(rate=plan.messages_per_s))
        for scenario in plan.scenarios:
            if scenario.shape == shape:
                results.append(await _scenario(scenario, fleet, agents, sockets, plan))
                tell(f"  {scenario.name}: {results[-1].end_s - results[-1].start_s:.0f} s")
        mail.stop()
        await sending
        told = await truth(cluster.api_url, agents.keys)
        await _drain(plan, agents, told.listed)
        for task in (*waiting, looking):
            task.cancel()
    faults = [
        Interval(kind="redis_failover", start_s=result.start_s, end_s=result.end_s)
        for result in results
        if result.scenario.redis_away
    ]
    verdict = audit(agents.readers, told.listed, agents.record.receipts, faults)
    outcome.verdicts[shape] = verdict
    outcome.results += results
    for result in results:
        _attribute(result, verdict, agents, told.listed)


async def _scenario(scenario: Scenario, fleet: Fleet, agents: Agents, sockets: SocketCount, plan: Plan) -> Result:
    await asyncio.sleep(plan.pace.quiet_s)
    record = agents.record
    result = Result(scenario=scenario, start_s=time.time())
    calls, dropped, failed = record.calls.total(), record.calls["dropped"], len(record.failed)
    sockets.begin()
    await fleet.cluster.control.call("reset_stats")
    await scenario.act(fleet)
    result.settled = await sockets.everybody(within_s=plan.settle_s)
    result.gaps = sockets.gaps
    result.peak_connects_per_s = sockets.stats.get("peak_connects_per_s", 0)
    await asyncio.sleep(plan.pace.quiet_s)
    result.end_s = time.time()
    result.calls = record.calls.total() - calls
    result.dropped = record.calls["dropped"] - dropped
    result.failed = Counter(one.kind[:160] for one in record.failed[failed:])
    return result


async def _drain(plan: Plan, agents: Agents, listed: dict[str, dict[int, Known]]) -> None:
    deadline = time.monotonic() + plan.drain_s
    while missing(agents.readers, listed, agents.record.receipts):
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(0.5)
    # What comes twice comes now.
    await asyncio.sleep(2.0)


def _attribute(result: Result, verdict: Verdict, agents: Agents, listed: dict[str, dict[int, Known]]) -> None:
    """What of the account belongs to this scenario: by the time at which a message became available."""
    addresses = {reader.name: reader.address for reader in agents.readers}

    def mine(name: str, message_id: int) -> bool:
        known = listed[addresses[name]].get(message_id)
        return known is not None and result.start_s <= known.available_at_s <= result.end_s

    result.lost = [one for one in verdict.lost if mine(*one)]
    result.duplicates = [one for one in (*verdict.unmarked, *verdict.again) if mine(*one)]
    first: set[tuple[str, int]] = set()
    for receipt in agents.record.receipts:
        if not mine(receipt.reader, receipt.id):
            continue
        if (receipt.reader, receipt.id) in first:
            result.repeated_unmarked += not receipt.marked
            continue
        first.add((receipt.reader, receipt.id))
        known = listed[addresses[receipt.reader]][receipt.id]
        result.worst_delay_s = max(result.worst_delay_s, receipt.at_s - known.available_at_s)
    result.messages = len(first)
