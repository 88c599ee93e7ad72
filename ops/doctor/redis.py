"""The Redis of a fleet: whether it answers, is the right kind, allows what a fleet does, and fits the seal key."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from redis.asyncio.client import PubSub
from redis.exceptions import RedisClusterException, RedisError

from ledger.port import LedgerError
from ledger.redis.operators import OLDEST, ServerFacts, server_facts
from ledger.seal import SealKeys
from ledger.store import RedisStore
from ops.doctor.findings import Check, Finding, Level, Trouble
from ops.doctor.trials import FULL, PARTS, Trials, brief, is_outage, remedy, try_queue

CONNECT_S = 15.0
"""Longer than a connection, a command and the one repetition of both may take."""

TRIED_S = 20.0
"""All the operations of the parts together; each takes milliseconds."""

SLOW_S = 0.02
"""A round trip above this is felt: a wake-up of a waiting agent takes three or four."""

ROUND_TRIPS = 5
"""How many are measured. The middle one counts."""

SKEW_S = 5.0
"""A difference of clocks worth a warning: tokens are taken as expired by our clock."""

FULL_SHARE = 0.85
"""Of ``maxmemory``. Above it a burst of new callers fills the server, which then refuses writes."""

LOOKED_AT = 20
"""Active callers whose records are opened to see whether the seal key fits."""


class RedisChecks:
    """The checks of one Redis. Each is made only if the one before it went well."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str,
        seal: SealKeys | None,
        queue_url: str | None,
        api_url: str | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Without ``seal`` no record is opened; without ``queue_url`` the job queue is left out.

        Raises `ValueError` for a URL or a prefix that cannot be.
        """
        self._url = url
        self._prefix = prefix
        self._seal = seal
        self._trial_seal = seal or SealKeys.parse(SealKeys.generate())
        self._queue_url = queue_url
        self._api_url = api_url
        self._clock = clock
        self._store = RedisStore(url, prefix=prefix, seal=self._trial_seal, clock=clock)

    async def run(self) -> AsyncIterator[Finding]:
        """All lines, in order."""
        try:
            found = await self._connection()
            yield found
            if found.level == "failure":
                return
            for found in await self._server():
                yield found
            checks: tuple[Callable[[], Awaitable[Finding | None]], ...]
            checks = (self._clock_skew, self._rights, self._notifications, self._same_keys, self._queue)
            for check in checks:
                done = await check()
                if done is not None:
                    yield done
        finally:
            await self._store.topology.aclose()

    async def _connection(self) -> Finding:
        check = Check(
            name="redis",
            tried=f"PING {self._store.topology.shown}",
            within_s=CONNECT_S,
            late="Nothing answers there: look at the server, the firewall, and the address in FMSG_REDIS_URL.",
        )

        async def work() -> str:
            times: list[float] = []
            for _ in range(ROUND_TRIPS + 1):  # the first one connects
                began_s = time.perf_counter()
                await self._command("PING")
                times.append(time.perf_counter() - began_s)
            middle_s = sorted(times[1:])[ROUND_TRIPS // 2]
            if middle_s > SLOW_S:
                do = "Run it nearer to the fleet, or find out what keeps it busy (SLOWLOG, INFO commandstats)."
                raise Trouble(f"it answers, but only after {middle_s * 1000:.0f} ms", do, level="warning")
            return f"answered after {middle_s * 1000:.1f} ms"

        return (await check.run(work, str))[0]

    async def _server(self) -> list[Finding]:
        check = Check(name="redis server", tried="ask it what it is (INFO)", within_s=CONNECT_S, late="Look at it.")

        async def work() -> ServerFacts:
            try:
                return await server_facts(self._store.scripts)
            except (LedgerError, KeyError) as error:
                do = "Allow the user INFO (`+info`), or see to version, eviction and persistence yourself."
                raise Trouble(f"it does not tell ({brief(error)})", do, level="warning") from None

        asked = await check.run(work, repr)
        found, facts = asked
        return [found] if facts is None else judged(facts)

    async def _clock_skew(self) -> Finding:
        check = Check(
            name="redis clock",
            tried="compare Redis' TIME with our clock",
            within_s=CONNECT_S,
            late="Look at the server.",
        )

        async def work() -> str:
            began_s = self._clock()
            seconds, micros = await self._command("TIME")
            skew_s = int(seconds) + int(micros) / 1e6 - (began_s + self._clock()) / 2
            if abs(skew_s) > SKEW_S:
                which = "ahead of" if skew_s > 0 else "behind"
                do = "Let both machines keep time (chrony or systemd-timesyncd)."
                raise Trouble(f"Redis is {abs(skew_s):.0f} s {which} us", do, level="warning")
            return f"they differ by {abs(skew_s) * 1000:.0f} ms"

        return (await check.run(work, str))[0]

    async def _rights(self) -> Finding:
        prefix = f"{self._prefix}:doctor"
        check = Check(
            name="redis rights",
            tried=f"do what the fleet does, under the prefix {prefix}",
            within_s=TRIED_S,
            late="The server is overloaded: look at it.",
        )

        async def work() -> str:
            refused = await Trials(self._url, prefix=prefix, seal=self._trial_seal).run()
            if refused:
                raise Trouble(f"{len(refused)} of {len(PARTS)} parts fail: {_told(refused)}", remedy(_told(refused)))
            return f"all parts work ({', '.join(PARTS)})"

        return (await check.run(work, str))[0]

    async def _notifications(self) -> Finding:
        check = Check(
            name="redis notifications",
            tried="subscribe to a channel and hear what is published on it",
            within_s=CONNECT_S,
            late="The server is overloaded: look at it.",
        )
        channel = self._store.topology.channel("doctor")

        async def work() -> str:
            try:
                async with self._store.topology.pubsub() as reader:
                    await reader.subscribe(channel)
                    await _hear(reader, "subscribe")
                    began_s = time.perf_counter()
                    await self._command("PUBLISH", channel, "ring")
                    await _hear(reader, "message")
                    return f"heard after {(time.perf_counter() - began_s) * 1000:.1f} ms"
            except (RedisError, RedisClusterException, OSError) as error:
                do = f"Allow the user SUBSCRIBE and PUBLISH (`+@pubsub`) on the channels `&{self._prefix}:*`."
                raise Trouble(str(error), do) from None

        return (await check.run(work, str))[0]

    async def _same_keys(self) -> Finding | None:
        if self._seal is None:
            return None
        check = Check(
            name="seal key",
            tried="open what the running processes have sealed",
            within_s=CONNECT_S,
            late="Look at the server.",
        )

        async def work() -> str:
            callers = (await self._store.activations.active())[:LOOKED_AT]
            found = [await self._store.activations.get(caller) for caller in callers]
            opened = [activation for activation in found if activation is not None]
            if callers and not opened:
                do = "Give every process the same FMSG_SEAL_KEY; `fmsg-mcpd keygen --help` says how to rotate it."
                raise Trouble(f"none of {len(callers)} records opens with this FMSG_SEAL_KEY", do)
            foreign = {one.api_url for one in opened if self._api_url and one.api_url.rstrip("/") != self._api_url}
            if foreign:
                do = "Give each host a FMSG_REDIS_PREFIX of its own: daemons leave callers of other hosts alone."
                raise Trouble(f"there are callers of another host, too: {', '.join(sorted(foreign))}", do)
            return f"{len(opened)} of {len(callers)} records open" if callers else "no caller is active yet"

        return (await check.run(work, str))[0]

    async def _queue(self) -> Finding | None:
        if self._queue_url is None:
            return None
        url = self._queue_url
        check = Check(
            name="job queue",
            tried="put a job into a queue and run it",
            within_s=TRIED_S,
            late="Look at the Redis of the queue (FMSG_QUEUE_REDIS_URL, else FMSG_REDIS_URL) and the user's rights.",
        )
        prefix = f"{self._prefix}:doctor-{secrets.token_hex(4)}"
        named = "FMSG_REDIS_URL" if url == self._url else "FMSG_QUEUE_REDIS_URL"
        return (await check.run(lambda: try_queue(url, prefix=prefix, named=named), str))[0]

    async def _command(self, *words: str) -> Any:
        try:
            return await self._store.scripts.command(*words, idempotent=True)
        except LedgerError as error:
            raise Trouble(brief(error), remedy(brief(error)), outage=is_outage(brief(error))) from None


def _told(refused: Mapping[str, str]) -> str:
    """Which parts fail, and why: each reason once."""
    parts: dict[str, list[str]] = {}
    for part, why in refused.items():
        parts.setdefault(why, []).append(part)
    return "; ".join(f"{', '.join(those)}: {why}" for why, those in parts.items())


async def _hear(reader: PubSub, kind: str) -> None:
    while True:
        message = await reader.get_message(timeout=1.0)
        if message is not None and message["type"] == kind:
            return


def judged(facts: ServerFacts) -> list[Finding]:
    """The lines about what a server is: version and role, eviction, persistence, memory."""
    return [_kind(facts), _eviction(facts), _persistence(facts), _memory(facts)]


def _kind(facts: ServerFacts) -> Finding:
    level: Level = "ok"
    do = ""
    if facts.role != "master":
        level, do = "failure", "It refuses writes: point FMSG_REDIS_URL at the primary, or use redis+sentinel://."
    elif tuple(int(part) for part in facts.redis_version.split(".")[:2]) < OLDEST:
        level, do = "failure", "Too old: the scripts need Redis 6.2. Upgrade it, or use Valkey."
    came = f"{facts.product} {facts.version}, {facts.role}"
    return Finding(check="redis server", level=level, tried="ask it what it is (INFO)", came=came, do=do)


def _eviction(facts: ServerFacts) -> Finding:
    level: Level = "ok" if facts.eviction == "noeviction" else "warning"
    do = "Set it to noeviction: else ledgers vanish when memory is short, and are rebuilt from the host."
    return Finding(
        check="redis eviction",
        level=level,
        tried="ask for maxmemory-policy",
        came=facts.eviction,
        do="" if level == "ok" else do,
    )


def _persistence(facts: ServerFacts) -> Finding:
    tried = "ask whether changes outlive a restart"
    if facts.persists:
        return Finding(check="redis persistence", level="ok", tried=tried, came="they do (appendonly yes)")
    do = "Set appendonly yes: else a restart forgets subscriptions and which messages were returned already."
    return Finding(check="redis persistence", level="warning", tried=tried, came="they do not (appendonly no)", do=do)


def _memory(facts: ServerFacts) -> Finding:
    used, most = facts.used_memory_bytes, facts.max_memory_bytes
    level: Level = "ok"
    came = f"{_mebibytes(used)} of {_mebibytes(most)}" if most else f"{_mebibytes(used)}, without a limit"
    do = ""
    if most and used >= most and facts.eviction == "noeviction":
        level, came, do = "failure", f"it is full: {came}", FULL
    elif most and used > FULL_SHARE * most:
        level = "warning"
        do = "Raise maxmemory: a full server refuses writes, and then waits hold. A caller needs about 10 kB."
    return Finding(check="redis memory", level=level, tried="ask for the memory used", came=came, do=do)


def _mebibytes(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MiB"
