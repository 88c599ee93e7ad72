"""Deliveries: to local recipients, and between hosts of one process, with confirmation, refusal and retry.

The hosts hand each other records, not bytes: what the wire protocol between hosts adds (challenge, headers, its own
hash) is not imitated, its outcomes are. A message is known on every host by its sha256; each host gives it its own id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from sandbox.records import (
    DELIVERED,
    DUPLICATE,
    PARENT_NOT_FOUND,
    UNKNOWN_USER,
    UNREACHABLE,
    Batch,
    Reacted,
    Recipient,
    Record,
    domain_of,
    lowered,
)

if TYPE_CHECKING:
    from sandbox.core import Core


class Courier:
    """Delivers for one host. Its timers are its own and end with `close`."""

    def __init__(self, core: Core) -> None:
        self.peers: dict[str, Core] = {}
        """Hosts that can be reached, by domain in lower case."""
        self.cut: set[str] = set()
        """Domains that cannot be reached for now, peers or not."""
        self.answering = True
        """Whether this host answers other hosts."""
        self.refusal: int | None = None
        """Code for every message another host brings; None takes them."""
        self._core = core
        self._timers: set[asyncio.TimerHandle] = set()
        self._stalled: dict[str, list[Callable[[], None]]] = {}

    def peer(self, domain: str) -> Core | None:
        """The host of a domain if it answers now."""
        found = self.peers.get(domain)
        if found is None or domain in self.cut or self._core.domain in found.courier.cut:
            return None
        return found if found.courier.answering else None

    def later(self, delay_s: float, job: Callable[[], None]) -> None:
        """Run the job after the delay, unless the host is closed first."""

        def run() -> None:
            self._timers.discard(timer)
            job()

        timer = asyncio.get_running_loop().call_later(delay_s, run)
        self._timers.add(timer)

    @property
    def undelivered(self) -> int:
        """Deliveries waiting for a domain that does not answer."""
        return sum(map(len, self._stalled.values()))

    def close(self) -> None:
        """Give up everything that is on its way."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._stalled.clear()

    def retry_now(self) -> None:
        """Try again what could not be delivered."""
        stalled, self._stalled = self._stalled, {}
        for jobs in stalled.values():
            for job in jobs:
                job()

    def dispatch(self, record: Record, *, batch: Batch | None = None) -> None:
        """Deliver a message just sent, or a batch just recorded, wherever its participants live."""
        recipients = list(record.recipients()) if batch is None else batch.to
        local = [recipient for recipient in recipients if self._core.is_local(recipient.addr)]
        if local:
            self.later(self._core.switches.delivery_delay_s, lambda: self._deliver_here(record, local))
        everybody = (
            [recipient.addr for recipient in recipients] if batch is None else list(record.participants().values())
        )
        for domain in sorted({domain_of(address) for address in everybody} - {self._core.domain}):
            self._post(record, domain, recipients)

    def _post(self, record: Record, domain: str, recipients: list[Recipient]) -> None:
        def job() -> None:
            self._deliver_there(record, domain, recipients)

        if domain in self._stalled:
            self._stalled[domain].append(job)
        else:
            self.later(self._core.switches.delivery_delay_s, job)

    def refuse_here(self, record: Record, recipients: Iterable[Recipient]) -> None:
        """Mark the local recipients that this host refuses, before the message is listed for anybody."""
        for recipient in recipients:
            if self._core.is_local(recipient.addr):
                code = self.acceptance(recipient.addr)
                recipient.code = None if code == DELIVERED else code

    def _deliver_here(self, record: Record, recipients: Iterable[Recipient]) -> None:
        now_s = self._core.clock()
        for recipient in recipients:
            if recipient.code is None:
                self._settle(record, recipient, DELIVERED, now_s)
        self._core.state.save(record)

    def _deliver_there(self, record: Record, domain: str, recipients: list[Recipient]) -> None:
        theirs = [recipient for recipient in recipients if domain_of(recipient.addr) == domain]
        peer = self.peer(domain)
        if peer is None:
            for recipient in theirs:
                recipient.code = UNREACHABLE
            self._stall(domain, lambda: self._deliver_there(record, domain, recipients))
        else:
            codes = peer.courier.accept(record)
            now_s = self._core.clock()
            for recipient in theirs:
                self._settle(record, recipient, codes.get(lowered(recipient.addr), UNKNOWN_USER), now_s)
        self._core.state.save(record)

    def _settle(self, record: Record, recipient: Recipient, code: int, now_s: float) -> None:
        if code == DELIVERED:
            recipient.delivered_at_s = now_s
            recipient.code = None
            self._core.announce("delivered", record, [record.from_])
        else:
            recipient.code = code

    def _stall(self, domain: str, job: Callable[[], None]) -> None:
        jobs = self._stalled.setdefault(domain, [])
        jobs.append(job)
        if len(jobs) == 1:
            self.later(self._core.switches.retry_s, lambda: self._retry(domain))

    def _retry(self, domain: str) -> None:
        for job in self._stalled.pop(domain, []):
            job()

    def acceptance(self, address: str) -> int:
        """The delivery code this host gives for one of its addresses."""
        account = self._core.accounts.accounts.get(lowered(address))
        if account is None or not account.known:
            return UNKNOWN_USER
        return DELIVERED if account.delivery_code is None else account.delivery_code

    def has_parent(self, pid_hash: str) -> bool:
        """Whether a reply that names its parent by this hash can be taken here."""
        state = self._core.state
        return pid_hash in state.by_hash or pid_hash in state.by_batch_hash

    def accept(self, arriving: Record) -> dict[str, int]:
        """Take a message, or its new batches, from another host; the code per local recipient in lower case."""
        core = self._core
        local = {
            lowered(recipient.addr): recipient.addr
            for recipient in arriving.recipients()
            if core.is_local(recipient.addr)
        }
        if self.refusal is not None:
            return dict.fromkeys(local, self.refusal)
        known = core.state.by_hash.get(arriving.sha256 or "")
        if known is not None:
            return self._accept_batches(core.state.messages[known], arriving, local)
        if arriving.pid_hash is not None and not self.has_parent(arriving.pid_hash):
            return dict.fromkeys(local, PARENT_NOT_FOUND)
        codes = {lower: self.acceptance(address) for lower, address in local.items()}
        if DELIVERED not in codes.values() and local:
            return codes
        record = self._copy(arriving)
        arrive(core, record, codes)
        return codes

    def _copy(self, arriving: Record) -> Record:
        record = msgspec.msgpack.decode(msgspec.msgpack.encode(arriving), type=Record)
        record.id = self._core.state.take_id()
        record.reads, record.reactions = {}, {}
        record.pid = self._parent_id(arriving.pid_hash)
        for recipient in record.recipients():
            recipient.delivered_at_s, recipient.code = None, None
        for batch in record.add_to:
            batch.batch_id = self._core.state.take_batch_id()
        return record

    def _parent_id(self, pid_hash: str | None) -> int | None:
        if pid_hash is None:
            return None
        state = self._core.state
        return state.by_hash[pid_hash] if pid_hash in state.by_hash else state.by_batch_hash[pid_hash][0]

    def _accept_batches(self, record: Record, arriving: Record, local: dict[str, str]) -> dict[str, int]:
        core = self._core
        fresh = [batch for batch in arriving.add_to if batch.sha256 not in core.state.by_batch_hash]
        if not fresh:
            return dict.fromkeys(local, DUPLICATE)
        codes: dict[str, int] = {}
        for batch in fresh:
            copy = msgspec.msgpack.decode(msgspec.msgpack.encode(batch), type=Batch)
            copy.batch_id = core.state.take_batch_id()
            for recipient in copy.to:
                recipient.delivered_at_s, recipient.code = None, None
                if core.is_local(recipient.addr):
                    codes[lowered(recipient.addr)] = self.acceptance(recipient.addr)
                    _mark(recipient, codes[lowered(recipient.addr)], core.clock())
            record.add_to.append(copy)
        core.state.index(record)
        core.state.save(record)
        core.announce("recipients_added", record, list(record.participants().values()))
        return codes


def arrive(core: Core, record: Record, codes: dict[str, int]) -> None:
    """Store a message that came from another host and tell the local participants."""
    for recipient in record.recipients():
        if lowered(recipient.addr) in codes:
            _mark(recipient, codes[lowered(recipient.addr)], core.clock())
    if record.reaction is not None and record.pid is not None:
        core.state.index(record)
        core.state.save(record)
        record_reaction(core, record)
        return
    core.lead(record)
    core.state.index(record)
    core.state.save(record)
    # Recipients added while it was a draft carry the message's own time and are told of it like the others.
    late = [item for batch in record.add_to if batch.time_s != record.time_s for item in batch.to]
    first = [item for item in record.recipients() if item not in late]
    core.announce("new_msg", record, [item.addr for item in first])
    core.announce("recipients_added", record, [item.addr for item in late])


def record_reaction(core: Core, reaction: Record) -> None:
    """Let a stored reaction message count for its subject, and tell the subject's participants but the reactor."""
    if reaction.pid is None or reaction.time_s is None:
        return
    subject = core.state.messages[reaction.pid]
    reactor = lowered(reaction.from_)
    latest = subject.reactions.get(reactor)
    if latest is None or reaction.time_s >= latest.time_s:
        subject.reactions[reactor] = Reacted(
            addr=reaction.from_, emoji=reaction.reaction or "", time_s=reaction.time_s, message_id=reaction.id
        )
        core.state.save(subject)
    told = subject if core.switches.reaction_event_subject else reaction
    others = [address for lower, address in subject.participants().items() if lower != reactor]
    core.announce("reaction", told, others)


def _mark(recipient: Recipient, code: int, now_s: float) -> None:
    if code == DELIVERED:
        recipient.delivered_at_s = now_s
    else:
        recipient.code = code
