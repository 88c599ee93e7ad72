"""``python -m tests.attack.run``: hostile clients and a hostile host beside ordinary callers, in real processes.

For each attack it prints the longest answer of /healthz, the peak memory of the process, and what the callers noticed.
Everything is on the loopback, every attack ends by itself, and nothing is asked of any other machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop

from ops.processes import Child
from tests.attack.clients import ATTACKS
from tests.attack.host import DOMAIN
from tests.attack.ordinary import SENDER, Ordinary
from tests.attack.watch import Watch
from tests.chaos.calls import Client
from tests.within import within

MALLORY = f"@mallory@{DOMAIN}"
"""Who attacks, and whom the host lies to."""
HEALTH_S, WORST_HEALTH_S, MEMORY_MB = 0.1, 0.25, 600.0
"""What /healthz may take under one request and (99th percentile) under sixteen, and what the process may grow to."""
SETTLE_S = 80.0
"""After an attack, for what was delivered meanwhile to come back: a feed whose socket was cut compares lists within a
minute or so. What is late shows in the wake times."""
HOST_ENDS_S = 5.0
"""A host that does not end by itself is ended after this."""
CLIENT_S = 40.0
"""A client process is ended after this."""


class Case(msgspec.Struct, frozen=True):
    """One attack: what the client does, and what the host answers it meanwhile."""

    client: str
    host: str = "none"

    @property
    def name(self) -> str:
        """In the report."""
        return self.client if self.host == "none" else f"{self.client} / {self.host}"


HOST_LIES = (
    "list_of_ids",
    "list_of_nothing",
    "list_gzipped",
    "list_deflate_bomb",
    "list_nested",
    "list_of_addresses",
    "reactions",
    "topic",
    "sizes",
    "body_of_tokens",
    "body_of_keys",
    "attachment_of_tokens",
    "attachment_of_controls",
    "attachment_of_emoji",
    "attachment_with_emoji",
    "error_without_end",
)
CASES = (
    *(Case(name) for name in ATTACKS if name not in ("calls", "downloads_unread", "hundred_of_everything")),
    Case("hundred_of_everything", "attachment_of_emoji"),
    *(Case("downloads_unread", lie) for lie in ("attachment_of_controls", "attachment_with_emoji")),
    *(Case("calls", lie) for lie in HOST_LIES),
)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one attack did."""

    case: str
    seconds: float
    healthz_s: float
    healthz_p99_s: float
    peak_mb: float
    memory_mb: float
    woken: int
    wake_p50_s: float
    wake_p99_s: float
    missing: int
    again: int
    failures: dict[str, int]

    @property
    def unnoticed(self) -> bool:
        """Whether the ordinary callers noticed nothing but time."""
        return not self.missing and not self.failures

    @property
    def within(self) -> bool:
        """Whether the process stayed within what is promised on a quiet machine."""
        healthz = (
            self.healthz_p99_s <= WORST_HEALTH_S
            if self.case.startswith(("worst_at_once", "hundred"))
            else self.healthz_s <= HEALTH_S
        )
        return healthz and self.peak_mb <= MEMORY_MB


class Fixture:
    """What runs."""

    def __init__(self, url: str, key: str, attack_url: str, watch: Watch, ordinary: Ordinary) -> None:
        self.watch = watch
        self.ordinary = ordinary
        self._url = url
        self._key = key
        self._attack_url = attack_url

    async def play(self, case: Case, session: aiohttp.ClientSession, *, scale: float) -> Verdict:
        """Make one attack, and wait for what it did to the callers."""
        ordinary, watch = self.ordinary, self.watch
        async with session.post(f"{self._attack_url}/{case.host}") as answer:
            answer.raise_for_status()
        ordinary.failures.clear()
        ordinary.wakes_s.clear()
        again = ordinary.again
        watch.begin()
        begun_s = time.monotonic()
        await self._client(case.client, scale)
        seconds = time.monotonic() - begun_s
        async with session.post(f"{self._attack_url}/none") as answer:
            answer.raise_for_status()
        missing = await ordinary.settled(SETTLE_S if not watch.killed else 0.0)
        wakes = sorted(ordinary.wakes_s)
        return Verdict(
            case=case.name,
            seconds=round(seconds, 1),
            healthz_s=watch.slowest_s,
            healthz_p99_s=watch.slow_s,
            peak_mb=watch.peak_mb,
            memory_mb=watch.memory_mb,
            woken=len(wakes),
            wake_p50_s=_quantile(wakes, 0.5),
            wake_p99_s=_quantile(wakes, 0.99),
            missing=missing,
            again=ordinary.again - again,
            failures=dict(ordinary.failures),
        )

    async def _client(self, attack: str, scale: float) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.attack.clients", self._url, self._key, attack, str(scale),
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(CLIENT_S):
                _, said = await process.communicate()
        except TimeoutError:
            process.kill()
            _, said = await process.communicate()
        if process.returncode:
            sys.stderr.write(f"{attack}: {said.decode()[-2000:]}\n")


def _quantile(ordered: Sequence[float], part: float) -> float:
    return ordered[int(len(ordered) * part)] if ordered else 0.0


@contextlib.asynccontextmanager
async def fixture(
    log_dir: Path, session: aiohttp.ClientSession, *, callers: int, scale: float, messages_per_s: float = 20.0
) -> AsyncIterator[Fixture]:
    """Start the host, `fmsg-mcpd up` and the callers."""
    async with contextlib.AsyncExitStack() as stack:
        host = await stack.enter_async_context(_host(scale))
        up = await Child.start("up", "up", "--port", "0", env={"FMSG_API_URL": host["url"]}, log_dir=log_dir)
        stack.push_async_callback(up.stop)
        url = (await up.announcement("mcp_url"))[0]["mcp_url"]
        watch = Watch(int(url.rpartition(":")[2].partition("/")[0]), up.pid)
        watch.start()
        stack.callback(watch.end)
        client = await stack.enter_async_context(Client())
        ordinary = Ordinary(url, host["control"], client, session, callers)
        await ordinary.ask("deliver", **{"from": SENDER, "to": [MALLORY], "body": "hello"})
        ready = asyncio.Event()
        running = asyncio.create_task(ordinary.run(ready, messages_per_s=messages_per_s, rng=random.Random(1)))
        try:
            await asyncio.wait([running, asyncio.ensure_future(ready.wait())], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running
            yield Fixture(url, host["key"], host["attack"], watch, ordinary)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@contextlib.asynccontextmanager
async def _host(scale: float) -> AsyncIterator[dict[str, Any]]:
    """What the hostile host announces, while it runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.attack.host", MALLORY, str(scale),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    if process.stdout is None or process.stdin is None:
        raise RuntimeError("the host was started without pipes")
    try:
        announced: dict[str, Any] = json.loads(await process.stdout.readline())
        yield announced
    finally:
        process.stdin.close()
        try:
            await within(process.wait(), HOST_ENDS_S)
        except TimeoutError:
            process.kill()
            await process.wait()


async def attack(
    cases: Sequence[Case], log_dir: Path, *, callers: int, scale: float, tell: Callable[[Verdict], None]
) -> list[Verdict]:
    """Play all cases, one after the other, on a fresh process after one that stays over the aim."""
    verdicts: list[Verdict] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        while len(verdicts) < len(cases):
            async with fixture(log_dir, session, callers=callers, scale=scale) as running:
                for case in cases[len(verdicts) :]:
                    verdict = await running.play(case, session, scale=scale)
                    verdicts.append(verdict)
                    tell(verdict)
                    if running.watch.killed or verdict.memory_mb > MEMORY_MB:
                        break
    return verdicts


def line_of(verdict: Verdict) -> str:
    """A verdict in one line."""
    marks = f"{'' if verdict.within else ' !'}{'' if verdict.unnoticed else ' NOTICED'}"
    return (
        f"{verdict.case:42} {verdict.seconds:5.1f} s   healthz {verdict.healthz_s * 1000:6.0f} ms "
        f"(p99 {verdict.healthz_p99_s * 1000:5.0f})   peak {verdict.peak_mb:6.0f} MB, then {verdict.memory_mb:5.0f}   "
        f"{verdict.woken:4} woken, p99 {verdict.wake_p99_s * 1000:6.0f} ms, {verdict.missing} missing, "
        f"{verdict.again} again, {sum(verdict.failures.values())} failed{marks}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Play the attacks; returns 0 if the ordinary callers noticed none of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack.run", description=__doc__)
    parser.add_argument("--callers", type=int, default=200)
    parser.add_argument("--scale", type=float, default=1.0, help="of the sizes; 1 is up to 60 MB a request")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="attacks whose name has one of these")
    parser.add_argument("--keep-logs", metavar="DIR", help="keep the processes' logs here")
    options = parser.parse_args(argv)
    cases = [case for case in CASES if not options.only or any(part in case.name for part in options.only)]

    def tell(verdict: Verdict) -> None:
        print(line_of(verdict), flush=True)
        for said, count in verdict.failures.items():
            print(f"    {count} x {said}", flush=True)

    with contextlib.ExitStack() as stack:
        directory = options.keep_logs or stack.enter_context(tempfile.TemporaryDirectory(prefix="fmsg-attack-"))
        Path(directory).mkdir(parents=True, exist_ok=True)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            verdicts = runner.run(
                attack(cases, Path(directory), callers=options.callers, scale=options.scale, tell=tell)
            )
    worst_s, worst_mb = max(v.healthz_s for v in verdicts), max(v.peak_mb for v in verdicts)
    print(f"\nlongest /healthz {worst_s * 1000:.0f} ms, peak memory {worst_mb:.0f} MB.")
    print(f"A ! is over the aims of a quiet machine: {HEALTH_S * 1000:.0f} ms and {MEMORY_MB:.0f} MB.")
    return 0 if all(verdict.unnoticed for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
