"""Whether Redis allows what a fleet does: every part of the store and the job queue are tried.

The trials happen under a prefix of their own, which no process looks at, and clean up behind them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from ledger.operators import Process
from ledger.port import DeferredTask, LedgerError, Member
from ledger.seal import SealKeys
from ledger.store import RedisStore
from ledger.values import START, Baseline, CallerKey, LedgerLimits, Seen
from ops.doctor.findings import Trouble
from workers.queue import ArqQueue, Job, TryLater

KEPT_S = 60.0
"""What an interrupted trial leaves behind is gone after this long."""

CALLER = CallerKey("0" * 32)
"""The caller of the trials, who does not exist."""

PARTS = ("ledger", "activations", "fleet", "documents", "deferred", "processes")
"""The parts of a store, in the order they are tried."""

_INNER = re.compile(r"failed \((.*)\)\. (?:Check that|The server refuses)", re.DOTALL)
"""What Redis or the client said, inside of the text of a `LedgerUnavailable`."""

_SCRIPT = re.compile(
    r"Error running script \(call to \w+\): (?:@user_script: ?\d+: )+-?|\.? script: (?:\w+, )?on @user_script:\d+"
)
"""Where in a script of ours a command was refused, as servers of different age put it."""

_PIPELINE = re.compile(r"of pipeline caused error: \(?[\"']?(.*?)[\"']?,?\)?$", re.DOTALL)
"""What the server said, inside of the client's text about a refused pipeline. The whole command stands before it."""

FULL = (
    "The server is full and refuses writes: raise maxmemory (CONFIG SET maxmemory …, and in its configuration), or let "
    "it hold less (FMSG_LEDGER_MAX_ENTRIES, FMSG_LEDGER_DAYS). Until then waits hold; nothing is lost."
)
"""What to do about a server that has no memory left."""


class Trials:
    """Does with every part of a store what the fleet does with it."""

    def __init__(self, url: str, *, prefix: str, seal: SealKeys) -> None:
        limits = LedgerLimits(
            ttl_s=KEPT_S,
            returned_ttl_s=KEPT_S,
            activation_ttl_s=KEPT_S,
            feed_ttl_s=KEPT_S,
            lease_ttl_s=KEPT_S,
            deferred_ttl_s=KEPT_S,
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
        head = (await ledger.read(CALLER, START, 1)).state.head
        await ledger.note_returned(CALLER, above=[1], position=1, head=head)
        await ledger.find(CALLER, [1])
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

    async def _try_deferred(self) -> None:
        deferred = self._store.deferred
        task = DeferredTask(kind="doctor", caller=CALLER, message_id=1, due_s=0.0)
        await deferred.add(task)
        await deferred.due(1)
        await deferred.done(task)

    async def _try_processes(self) -> None:
        processes = self._store.processes
        await processes.announce(Process(id="doctor", role="doctor", name="doctor", version="0", since_s=0.0))
        await processes.present()
        await processes.withdraw("doctor")


async def try_queue(url: str, *, prefix: str, named: str = "FMSG_REDIS_URL") -> str:
    """Put a job into a queue of our own and run it; ``named`` is the variable that names its Redis.

    Raises `Trouble`, `ledger.redis.topology.BadRedisUrl`.
    """
    ran = asyncio.Event()

    async def run() -> str:
        ran.set()
        return "done"

    queue = ArqQueue(url, prefix=prefix, poll_s=0.05, drain_s=1.0)
    try:
        await queue.put("doctor", job_id="trial")
    except TryLater as error:
        await queue.aclose()
        why = said(error.__cause__ or error)
        do = "Give the user of the queue the rights of docs/ledger.md, and `~arq:* +@transaction` besides."
        do = do if is_refusal(why) else remedy(why, named=named)
        raise Trouble(f"no job can be put in: {why}", do, outage=is_outage(why)) from None
    await queue.run([Job(name="doctor", run=run, once_s=1.0, timeout_s=5.0, max_tries=1)], stop=ran)
    return "it ran"


def brief(error: BaseException) -> str:
    """What Redis said, without our own words and without its words about our scripts."""
    text = str(error) or type(error).__name__
    inner = _INNER.search(text)
    return _SCRIPT.sub("", inner[1] if inner else text).rstrip(".")


def said(error: BaseException) -> str:
    """What Redis, or its client, said when it refused a command; without the command, which may hold anything."""
    text = brief(error)
    inner = _PIPELINE.search(text)
    return f"{type(error).__name__}: {inner[1].rstrip('.') if inner else text}"


def is_refusal(why: str) -> bool:
    """Whether Redis does not let this user do something."""
    return any(word in why.lower() for word in ("permission", "noperm"))


def is_full(why: str) -> bool:
    """Whether Redis refuses writes for lack of memory."""
    return any(words in why.lower() for words in ("oom command", "maxmemory", "outofmemory"))


def is_outage(why: str) -> bool:
    """Whether Redis is away or not ready yet, so that another try may succeed."""
    told = why.lower()
    if any(word in told for word in ("auth", "password", "wrongpass", "certificate", "ssl")):
        return False
    return any(
        word in told for word in ("connect", "timeout", "timed out", "closed by server", "loading", "masterdown")
    )


def remedy(why: str, *, named: str = "FMSG_REDIS_URL") -> str:
    """The next step after the Redis of that variable, or its client, said so."""
    told = why.lower()
    if is_full(why):
        return FULL
    if is_refusal(why):
        return f"Give the user in {named} the rights that docs/ledger.md lists."
    if "auth" in told or "password" in told or "wrongpass" in told:
        return f"Correct user and password in {named}; percent-encode what is special in them."
    if "certificate" in told or "ssl" in told:
        return f"Check rediss:// against redis://, the port, and ssl_ca_certs in {named}."
    if "refused" in told or "connect call failed" in told:
        return f"Nothing listens there: start Redis, or correct host and port in {named}."
    if "read only" in told or "readonly" in told or "replica" in told:
        return f"That server is a replica: point {named} at the primary, or use redis+sentinel://."
    return f"Look at the server's log, and check {named}."
