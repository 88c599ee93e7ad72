"""A whole run: a cluster, its callers, what arrives, what goes wrong meanwhile, and the account of it in the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from tests.chaos.calls import Client
from tests.chaos.cluster import DOMAIN, ChaosCluster, Sizes, running
from tests.chaos.consumers import Consumer, Habits, Record
from tests.chaos.faults import FAULTS, FLUSHING, Storm
from tests.chaos.mail import STRANGERS, Mail, Mix, Sending
from tests.chaos.truth import Truth, truth
from tests.chaos.verdict import Interval, Kind, Reader, Verdict, audit, missing

TELL_S = 10.0
"""Between lines of progress."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a run. Times in seconds."""

    callers: int = 200
    messages: int = 20_000
    seconds: float = 300.0
    seed: int = 1
    faults: tuple[str, ...] = tuple(FAULTS)
    fault_every_s: float = 3.0
    drain_s: float = 150.0
    """Within so long of the last message and the last fault everything has to be there."""
    sizes: Sizes = Sizes()
    habits: Habits = Habits()
    mix: Mix = Mix()
    switches: str = "current"
    """Preset of the sandbox host (`sandbox.switches.PRESETS`)."""
    env: dict[str, str] = {}


class Outcome(msgspec.Struct, kw_only=True):
    """What came of it."""

    plan: Plan
    verdict: Verdict
    calls: Counter[str]
    failures: Counter[str]
    sent: Counter[str]
    arrivals: int
    faults: list[Interval]
    deaths: list[str]
    failed_starts: int
    drained_s: float
    sendings: int = 0
    sent_twice: list[str] = []
    sent_never: list[str] = []
    """The caller was told that it was sent, and nobody has it; or it was never told anything."""
    sent_twice_after_flush: int = 0

    @property
    def good(self) -> bool:
        """Whether nothing happened that must not."""
        return self.verdict.good and not (self.sent_twice or self.sent_never or self.deaths)


class Cast:
    """The callers of a run and what they wrote down."""

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}
        self.readers: list[Reader] = []
        self.consumers: list[Consumer] = []
        self.record = Record()


async def cast(cluster: ChaosCluster, client: Client, plan: Plan, rng: random.Random) -> Cast:
    """An address for each caller, and the consumers at it: one or two, in every way there is to call."""
    found = Cast()

    def add(address: str, kind: Kind, *, count: int = 1, from_: str | None = None, name: str = "") -> None:
        reader = Reader(name=f"{address.split('@')[1]}/{name or kind}", address=address, kind=kind, from_=from_)
        found.readers.append(reader)
        habits = msgspec.structs.replace(plan.habits, forgets=0.2 if kind == "forgetful" else 0.0)
        for _ in range(count):
            consumer = Consumer(
                reader,
                found.keys[address],
                client,
                found.record,
                urls=lambda: cluster.urls,
                rng=random.Random(rng.getrandbits(64)),
                habits=habits,
                subscription=None if kind == "plain" else (name or kind),
            )
            found.consumers.append(consumer)

    for number in range(plan.callers):
        address = f"@caller{number}@{DOMAIN}"
        found.keys[address] = str(await cluster.control.call("create_key", address=address))
        match number % 10:
            case 0 | 1 | 2 | 3:
                add(address, "plain")
            case 4 | 5:
                add(address, "acknowledging")
            case 6:
                add(address, "plain", name="one")
                add(address, "plain", name="other")
            case 7:
                add(address, "shared", count=2)
            case 8:
                add(address, "forgetful")
                add(address, "plain")
            case _:
                add(address, "acknowledging", name="filtered", from_=STRANGERS[number % len(STRANGERS)])
                add(address, "plain", name="from", from_=STRANGERS[number % len(STRANGERS)])
    return found


async def run(plan: Plan, log_dir: Path, *, tell: Callable[[str], None] = lambda _: None) -> Outcome:
    """Run a plan from beginning to end."""
    rng = random.Random(plan.seed)
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running(log_dir, sizes=plan.sizes, env=plan.env))
        client = await stack.enter_async_context(Client())
        await cluster.control.call("set_switches", preset=plan.switches)
        players = await cast(cluster, client, plan, rng)
        mail = Mail(cluster, list(players.keys), players.keys, client, random.Random(rng.getrandbits(64)), mix=plan.mix)
        storm = Storm(cluster, random.Random(rng.getrandbits(64)), kinds=plan.faults, every_s=plan.fault_every_s)
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(consumer.run()) for consumer in players.consumers]
            telling = group.create_task(_tell(tell, players, mail, storm))
            try:
                await _weather(plan, mail, storm, players, tell)
                told = await truth(cluster.api_url, players.keys)
                drained_s = await _drain(plan, told, players, tell)
            finally:
                for task in (*waiting, telling):
                    task.cancel()
        with (log_dir / "trace.jsonl").open("w") as sink:
            sink.writelines(json.dumps(call) + "\n" for call in players.record.trace)
        verdict = audit(players.readers, told.listed, players.record.receipts, storm.intervals)
        outcome = Outcome(
            plan=plan,
            verdict=verdict,
            calls=players.record.calls,
            failures=players.record.failures,
            sent=mail.counts,
            arrivals=mail.arrivals,
            faults=storm.intervals,
            deaths=cluster.deaths,
            failed_starts=sum(len(part.failed_starts) for part in cluster.parts),
            drained_s=drained_s,
        )
        _count_sendings(outcome, mail.sendings, told)
        return outcome


async def _weather(plan: Plan, mail: Mail, storm: Storm, players: Cast, tell: Callable[[str], None]) -> None:
    """Everything that arrives and everything that goes wrong; returns when both are over."""
    over = asyncio.Event()
    later = frozenset(storm.kinds & FLUSHING)
    storm.kinds -= later
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(mail.run(rate=plan.messages / plan.seconds, count=plan.messages))
        striking = group.create_task(storm.run(over))
        if later:
            # Whoever forgets its position and so does Redis starts anew: only one of both at a time.
            await asyncio.sleep(plan.seconds / 2)
            for consumer in players.consumers:
                consumer.forgetful = False
            await asyncio.sleep(plan.seconds / 10)
            storm.kinds |= later
        await asyncio.sleep(0 if sending.done() else max(0.0, plan.seconds * (0.4 if later else 1.0)))
        over.set()
        await striking
        await storm.calm()
        tell("the faults are over; what was begun is finished")
        async with asyncio.timeout(plan.drain_s):
            await sending
    for consumer in players.consumers:
        consumer.hurry = True


async def _drain(plan: Plan, told: Truth, players: Cast, tell: Callable[[str], None]) -> float:
    """Wait until everybody has everything, for as long as that may take; returns how long it took."""
    began = time.monotonic()
    while (left := len(missing(players.readers, told.listed, players.record.receipts))) > 0:
        if time.monotonic() - began > plan.drain_s:
            tell(f"{left} are still missing after {plan.drain_s:g} s")
            break
        await asyncio.sleep(0.5)
    # What comes twice comes now.
    await asyncio.sleep(2.0)
    return time.monotonic() - began


async def _tell(tell: Callable[[str], None], players: Cast, mail: Mail, storm: Storm) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(TELL_S)
        calls = ", ".join(f"{count} {outcome}" for outcome, count in sorted(players.record.calls.items()))
        tell(
            f"{time.monotonic() - began:4.0f} s: {mail.arrivals} arrivals, {len(players.record.receipts)} received, "
            f"{len(storm.intervals)} faults; calls: {calls}"
        )


def _count_sendings(outcome: Outcome, sendings: Sequence[Sending], told: Truth) -> None:
    outcome.sendings = len(sendings)
    for sending in sendings:
        count = told.topics[sending.key]
        ended_s = sending.ended_s or time.time()
        if count == 0 or sending.sent_id is None:
            outcome.sent_never.append(f"{sending.key} of {sending.caller} after {sending.attempts} attempts")
        elif count > 1 and any(
            one.kind in FLUSHING and one.touches(sending.began_s, ended_s) for one in outcome.faults
        ):
            outcome.sent_twice_after_flush += 1
        elif count > 1:
            outcome.sent_twice.append(f"{sending.key} of {sending.caller}: {count} times")


def to_stderr(line: str) -> None:
    """Progress where somebody watches."""
    print(line, file=sys.stderr, flush=True)


def known_faults(names: Iterable[str]) -> tuple[str, ...]:
    """The names, if all of them are faults. Raises `ValueError`."""
    chosen = tuple(names)
    if unknown := sorted(set(chosen) - set(FAULTS)):
        raise ValueError(f"faults: there is no {', '.join(unknown)}; known are {', '.join(FAULTS)}")
    return chosen
