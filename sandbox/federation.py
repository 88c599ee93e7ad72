"""Deliveries: to local recipients, and between hosts of one process, with confirmation, refusal and retry.

The hosts hand each other records, not bytes: what the wire protocol between hosts adds (challenge, headers, its own
hash) is not imitated, its outcomes are. A message is known on every host by its sha256; each host gives it its own id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from sandbox.core import Core
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


def retry_now(core: Core) -> None:
    """Deliver now what could not be delivered."""
    stalled, core.links.stalled = core.links.stalled, {}
    for jobs in stalled.values():
        for job in jobs:
            job()


def dispatch(core: Core, record: Record, *, batch: Batch | None = None) -> None:
    """Deliver a message that was sent, or a batch that was recorded, to the hosts of its participants."""
    recipients = list(record.recipients()) if batch is None else batch.to
    local = [recipient for recipient in recipients if core.is_local(recipient.addr)]
    if local:
        core.later(core.switches.delivery_delay_s, lambda: _deliver_here(core, record, local))
    everybody = [recipient.addr for recipient in recipients] if batch is None else list(record.participants().values())
    for domain in sorted({domain_of(address) for address in everybody} - {core.domain}):
        _post(core, record, domain, recipients)


def _post(core: Core, record: Record, domain: str, recipients: list[Recipient]) -> None:
    def job() -> None:
        _deliver_there(core, record, domain, recipients)

    if domain in core.links.stalled:
        core.links.stalled[domain].append(job)
    else:
        core.later(core.switches.delivery_delay_s, job)


def refuse_here(core: Core, record: Record, recipients: Iterable[Recipient]) -> None:
    """Mark the local recipients that this host refuses. This comes before the message is listed."""
    for recipient in recipients:
        if core.is_local(recipient.addr):
            code = acceptance(core, recipient.addr)
            recipient.code = None if code == DELIVERED else code


def _deliver_here(core: Core, record: Record, recipients: Iterable[Recipient]) -> None:
    now_s = core.clock()
    for recipient in recipients:
        if recipient.code is None:
            _settle(core, record, recipient, DELIVERED, now_s)
    core.state.save(record)


def _deliver_there(core: Core, record: Record, domain: str, recipients: list[Recipient]) -> None:
    theirs = [recipient for recipient in recipients if domain_of(recipient.addr) == domain]
    peer = core.peer(domain)
    if peer is None:
        for recipient in theirs:
            recipient.code = UNREACHABLE
        _stall(core, domain, lambda: _deliver_there(core, record, domain, recipients))
    else:
        codes = accept(peer, record)
        now_s = core.clock()
        for recipient in theirs:
            _settle(core, record, recipient, codes.get(lowered(recipient.addr), UNKNOWN_USER), now_s)
    core.state.save(record)


def _settle(core: Core, record: Record, recipient: Recipient, code: int, now_s: float) -> None:
    if code == DELIVERED:
        recipient.delivered_at_s = now_s
        recipient.code = None
        core.announce("delivered", record, [record.from_])
    else:
        recipient.code = code


def _stall(core: Core, domain: str, job: Callable[[], None]) -> None:
    jobs = core.links.stalled.setdefault(domain, [])
    jobs.append(job)
    if len(jobs) == 1:
        core.later(core.switches.retry_s, lambda: _retry(core, domain))


def _retry(core: Core, domain: str) -> None:
    for job in core.links.stalled.pop(domain, []):
        job()


def acceptance(core: Core, address: str) -> int:
    """The delivery code this host gives for one of its addresses."""
    account = core.accounts.accounts.get(lowered(address))
    if account is None or not account.known:
        return UNKNOWN_USER
    return DELIVERED if account.delivery_code is None else account.delivery_code


def has_parent(core: Core, pid_hash: str) -> bool:
    """Whether a reply that names its parent by this hash can be taken here."""
    state = core.state
    return pid_hash in state.by_hash or pid_hash in state.by_batch_hash


def accept(core: Core, arriving: Record) -> dict[str, int]:
    """Take a message, or its new batches, from another host. Returns the code per local recipient in lower case."""
    local = {
        lowered(recipient.addr): recipient.addr for recipient in arriving.recipients() if core.is_local(recipient.addr)
    }
    if core.links.refusal is not None:
        return dict.fromkeys(local, core.links.refusal)
    known = core.state.by_hash.get(arriving.sha256 or "")
    if known is not None:
        return _accept_batches(core, core.state.messages[known], arriving, local)
    if arriving.pid_hash is not None and not has_parent(core, arriving.pid_hash):
        return dict.fromkeys(local, PARENT_NOT_FOUND)
    codes = {lower: acceptance(core, address) for lower, address in local.items()}
    if DELIVERED not in codes.values() and local:
        return codes
    record = _copy(core, arriving)
    arrive(core, record, codes)
    return codes


def _copy(core: Core, arriving: Record) -> Record:
    record = msgspec.msgpack.decode(msgspec.msgpack.encode(arriving), type=Record)
    record.id = core.state.take_id()
    record.reads, record.reactions = {}, {}
    record.pid = _parent_id(core, arriving.pid_hash)
    for recipient in record.recipients():
        recipient.delivered_at_s, recipient.code = None, None
    for batch in record.add_to:
        batch.batch_id = core.state.take_batch_id()
    return record


def _parent_id(core: Core, pid_hash: str | None) -> int | None:
    if pid_hash is None:
        return None
    state = core.state
    return state.by_hash[pid_hash] if pid_hash in state.by_hash else state.by_batch_hash[pid_hash][0]


def _accept_batches(core: Core, record: Record, arriving: Record, local: dict[str, str]) -> dict[str, int]:
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
                codes[lowered(recipient.addr)] = acceptance(core, recipient.addr)
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
    """Count a reaction message for its subject, and tell the subject's participants except the reactor."""
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
