"""Whether Redis lets us do what a fleet does: every part of the store and the job queue are tried for real.

The trials happen under a prefix of their own, which no process looks at, and clean up behind them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from ledger.arrival import Baseline, CallerKey, Seen
from ledger.limits import LedgerLimits
from ledger.oversight import Process
from ledger.port import Chore, LedgerError, Member
from ledger.seal import SealKeys
from ledger.store import RedisStore
from ops.doctor_findings import Trouble
from workers.arq_queue import ArqQueue
from workers.queue import Job, TryLater

KEPT_S = 60.0
"""What a trial leaves behind where it is cut off is gone after this long."""

CALLER = CallerKey("0" * 32)
"""The caller of the trials, who does not exist."""

PARTS = ("ledger", "activations", "fleet", "documents", "chores", "processes")
"""The parts of a store, in the order they are tried."""

_INNER = re.compile(r"failed \((.*)\)\. Waits go on", re.DOTALL)
"""What Redis or the client said, inside of the text of a `LedgerUnavailable`."""


class Trials:
    """Does with every part of a store what the fleet does with it."""

    def __init__(self, url: str, *, prefix: str, seal: SealKeys) -> None:
        limits = LedgerLimits(
            ttl_s=KEPT_S,
            returned_ttl_s=KEPT_S,
            activation_ttl_s=KEPT_S,
            feed_ttl_s=KEPT_S,
            lease_ttl_s=KEPT_S,
            chore_ttl_s=KEPT_S,
        )
        self._store = RedisStore(url, prefix=prefix, limits=limits, seal=seal)

    async def run(self) -> dict[str, str]:
        """The parts that fail, and why."""
        refused: dict[str, str] = {}
        try:
            for part in PARTS:
                trial: Callable[[], Awaitable[None]] = getattr(self, f"_try_{part}")
                try:
                    await trial()
                except LedgerError as error:
                    refused[part] = brief(error)
        finally:
            await self._store.topology.aclose()
        return refused

    async def _try_ledger(self) -> None:
        ledger = self._store.ledger
        seen = Seen(id=1, pid=None, root=1, from_="@doctor@doctor.invalid")
        await ledger.forget(CALLER)
        await ledger.begin(CALLER, [], Baseline())
        await ledger.append(CALLER, [seen], "push")
        await ledger.read(CALLER, 0, 1)
        await ledger.note_returned(CALLER, above=[1], position=1)
        await ledger.locate(CALLER, [1])
        await ledger.forget(CALLER)

    async def _try_activations(self) -> None:
        activations = self._store.activations
        await activations.activate(
            CALLER, address="@doctor@doctor.invalid", api_url="", token=None, token_expires_at_s=0.0
        )
        await activations.get(CALLER)
        await activations.active()
        await activations.retire(CALLER)

    async def _try_fleet(self) -> None:
        fleet = self._store.fleet
        await fleet.beat(Member(id="doctor", name="doctor", since_s=0.0))
        await fleet.take([CALLER], "doctor", over={})
        await fleet.members()
        await fleet.release([CALLER], "doctor")
        await fleet.leave("doctor")

    async def _try_documents(self) -> None:
        documents = self._store.documents
        found = await documents.load(CALLER, "doctor", "trial")
        await documents.store(CALLER, "doctor", "trial", b"trial", expected=found.version, ttl_s=KEPT_S)
        await documents.names(CALLER, "doctor")
        await documents.delete(CALLER, "doctor", "trial")

    async def _try_chores(self) -> None:
        chores = self._store.chores
        chore = Chore(kind="doctor", caller=CALLER, message_id=1, due_s=0.0)
        await chores.add(chore)
        await chores.due(1)
        await chores.done(chore)

    async def _try_processes(self) -> None:
        processes = self._store.processes
        await processes.announce(Process(id="doctor", role="doctor", name="doctor", version="0", since_s=0.0))
        await processes.present()
        await processes.withdraw("doctor")


async def try_queue(url: str, *, prefix: str) -> str:
    """Put a job into a queue of our own and run it. Raises `Trouble`, `ledger.topology.BadRedisUrl`."""
    ran = asyncio.Event()

    async def run() -> str:
        ran.set()
        return "done"

    queue = ArqQueue(url, prefix=prefix, poll_s=0.05, drain_s=1.0)
    try:
        await queue.put("doctor", job_id="trial")
    except TryLater as error:
        await queue.aclose()
        do = "Give the user of the queue the rights of docs/ledger.md, and `~arq:* +@transaction` besides."
        raise Trouble(str(error), do) from None
    await queue.run([Job(name="doctor", run=run, once_s=1.0, timeout_s=5.0, max_tries=1)], stop=ran)
    return "it ran"


def brief(error: BaseException) -> str:
    """What Redis said, without what we make of it."""
    text = str(error) or type(error).__name__
    inner = _INNER.search(text)
    return inner[1] if inner else text


def remedy(why: str) -> str:
    """The next step after Redis, or its client, said so."""
    told = why.lower()
    if "oom command" in told or "maxmemory" in told:
        return "Memory is full: raise maxmemory or give the server more. Until then waits poll; nothing is lost."
    if "no permission" in told or "noperm" in told:
        return "Give the user in FMSG_REDIS_URL the rights that docs/ledger.md lists."
    if "auth" in told or "password" in told or "wrongpass" in told:
        return "Correct user and password in FMSG_REDIS_URL; percent-encode what is special in them."
    if "certificate" in told or "ssl" in told:
        return "Check rediss:// against redis://, the port, and ssl_ca_certs in FMSG_REDIS_URL."
    if "refused" in told or "connect call failed" in told:
        return "Nothing listens there: start Redis, or correct host and port in FMSG_REDIS_URL."
    if "read only" in told or "readonly" in told or "replica" in told:
        return "That server is a replica: point FMSG_REDIS_URL at the primary, or use redis+sentinel://."
    return "Look at the server's log, and check FMSG_REDIS_URL."
