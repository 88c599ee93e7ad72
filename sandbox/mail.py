"""What a caller does with messages: drafts, sending, adding recipients, reading; and the refusals of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fmsg.address import fold, is_address
from sandbox.core import Core
from sandbox.records import Batch, Recipient, Record, batch_hash, domain_of
from sandbox.wire import Refused


def create_draft(core: Core, caller: str, fields: Mapping[str, Any]) -> Record:
    """``POST /fmsg``: store a draft and return it."""
    record = _draft(core, caller, fields, message_id=0)
    if not record.to:
        raise Refused(400, "at least one recipient is required")
    record.id = core.state.take_id()
    core.state.add_draft(record)
    return record


def replace_draft(core: Core, caller: str, record: Record, fields: Mapping[str, Any]) -> Record:
    """``PUT /fmsg/{id}``: other content under the same id, attachments kept. An empty ``to`` is taken."""
    require_draft(record, caller)
    fresh = _draft(core, caller, fields, message_id=record.id)
    fresh.attachments = record.attachments
    core.state.drop_draft(record)
    core.state.add_draft(fresh)
    return fresh


def delete_draft(core: Core, caller: str, record: Record) -> None:
    """``DELETE /fmsg/{id}``."""
    require_draft(record, caller)
    core.state.drop_draft(record)


def require_draft(record: Record, caller: str) -> None:
    """403 unless the message is a draft of the caller."""
    if fold(record.from_) != fold(caller):
        raise Refused(403, "access denied")
    if not record.is_draft:
        raise Refused(403, "message already sent")


def _draft(core: Core, caller: str, fields: Mapping[str, Any], *, message_id: int) -> Record:
    if fields.get("version", 1) != 1:
        raise Refused(400, "unsupported version")
    sender = fields.get("from")
    if not isinstance(sender, str) or fold(sender) != fold(caller):
        raise Refused(403, "from must be the authenticated address")
    to = _addresses(core, fields.get("to"), name="to")
    media_type = fields.get("type")
    if not isinstance(media_type, str) or "/" not in media_type:
        raise Refused(400, "type is required")
    topic = fields.get("topic") or ""
    pid = fields.get("pid")
    _check_topic(core, topic)
    if pid is not None and topic:
        raise Refused(400, "topic must be empty when pid is set")
    record = Record(
        id=message_id,
        from_=caller,
        to=[Recipient(addr=address) for address in to],
        type=media_type,
        topic=topic,
        important=bool(fields.get("important")),
        no_reply=bool(fields.get("no_reply")),
        terminal=bool(fields.get("terminal")) and core.switches.terminal,
    )
    _fill_body(core, record, fields)
    if pid is not None:
        _link(core, record, pid)
    return record


def _check_topic(core: Core, topic: object) -> None:
    if not isinstance(topic, str):
        raise Refused(400, "invalid topic")
    if len(topic.encode("utf-8", "surrogatepass")) > core.limits.topic_bytes:
        raise _broken(core, f"topic is over {core.limits.topic_bytes} bytes")
    if "\0" in topic:
        raise _broken(core, "topic holds a NUL")


def _broken(core: Core, text: str) -> Refused:
    return Refused(500, "failed to create message") if core.switches.broken_inputs_500 else Refused(400, text)


def _addresses(core: Core, value: object, *, name: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise Refused(400, f"invalid {name}")
    seen: set[str] = set()
    for address in value:
        if not isinstance(address, str) or not is_address(address):
            raise Refused(400, f'invalid {name} address: "{address}"')
        if fold(address) in seen:
            raise Refused(400, f'duplicate {name} address: "{address}"')
        seen.add(fold(address))
    if len(seen) > core.limits.recipients:
        raise _broken(core, f"over {core.limits.recipients} recipients")
    return value


def _fill_body(core: Core, record: Record, fields: Mapping[str, Any]) -> None:
    data, size = fields.get("data"), fields.get("size", 0)
    if data is not None and not isinstance(data, str):
        raise Refused(400, "invalid data")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise Refused(400, "invalid size")
    record.data = (data or "").encode("utf-8", "surrogatepass")
    if len(record.data) > core.limits.body_bytes or size > core.limits.body_bytes:
        raise Refused(413, "message body too large")
    if data is not None and size != len(record.data):
        raise Refused(400, f"size {size} does not match the {len(record.data)} bytes of data")
    record.declared_size = size


def _link(core: Core, record: Record, pid: object) -> None:
    parent, batch = _parent(core, pid)
    caller = fold(record.from_)
    if not core.sees(parent, record.from_):
        raise Refused(403, "not a participant of this parent; ask a participant to add you")
    if batch is not None:
        if not (parent.is_primary(caller) or batch.names(caller) or fold(batch.adder) == caller):
            raise Refused(403, "not a participant of this parent; this add-to batch does not name you")
    elif not parent.is_primary(caller) and core.switches.batch_reply_by_hash and core.switches.hashes:
        raise Refused(403, "not a participant of this parent; use the sha256 of the add-to batch that names you as pid")
    if parent.is_draft or parent.terminal:
        raise Refused(409, "parent is a draft or terminal message")
    record.pid = parent.id
    record.pid_hash = batch.sha256 if batch is not None else parent.sha256
    if batch is None and not parent.is_primary(caller):
        record.pid_hash = next(item.sha256 for item in parent.add_to if item.names(caller))


def _parent(core: Core, pid: object) -> tuple[Record, Batch | None]:
    state = core.state
    batch: Batch | None = None
    message_id: int | None = None
    if isinstance(pid, str) and len(pid) == 64 and core.switches.hashes:
        message_id = state.by_hash.get(pid.lower())
        if message_id is None and pid.lower() in state.by_batch_hash:
            message_id, batch = state.by_batch_hash[pid.lower()]
    elif isinstance(pid, int) and not isinstance(pid, bool):
        message_id = pid
    else:
        raise Refused(400, "invalid pid")
    parent = state.messages.get(message_id) if message_id is not None else None
    if parent is None:
        raise Refused(400, "parent message not found")
    return parent, batch


def send(core: Core, caller: str, record: Record) -> float:
    """``POST /fmsg/{id}/send``: the time it was sent. The id stays the draft's."""
    if fold(record.from_) != fold(caller):
        raise Refused(403, "access denied")
    if not record.is_draft:
        raise Refused(409, "message already sent")
    if not record.to:
        raise Refused(400, "message has no recipients")
    if record.declared_size != len(record.data):
        raise Refused(400, "message data is missing")
    _check_takers(core, record)
    publish(core, record)
    core.courier.dispatch(record)
    assert record.time_s is not None  # noqa: S101 - publish has just set it
    return record.time_s


def publish(core: Core, record: Record) -> None:
    """Make a stored draft a message and tell its local recipients, without delivering it elsewhere."""
    core.courier.refuse_here(record, record.recipients())
    core.lead(record)
    parent = core.state.messages.get(record.pid) if record.pid is not None else None
    core.state.publish(record, core.state.stamp(after=parent))
    core.announce("new_msg", record, [item.addr for item in record.recipients()])


def _check_takers(core: Core, record: Record) -> None:
    if record.pid_hash is None:
        return
    refusing = []
    for domain in sorted({domain_of(recipient.addr) for recipient in record.to}):
        peer = core if domain == core.domain else core.courier.peer(domain)
        if peer is None or peer.courier.has_parent(record.pid_hash):
            return
        refusing.append(domain)
    raise Refused(409, f"parent message is not held by any recipient host: {', '.join(refusing)}")


def add_recipients(core: Core, caller: str, record: Record, fields: Mapping[str, Any]) -> Batch:
    """``POST /fmsg/{id}/add-to``: the batch recorded."""
    folded = fold(caller)
    if not record.is_primary(folded) or (record.is_draft and fold(record.from_) != folded):
        raise Refused(403, "only existing participants may add recipients")
    added = _addresses(core, fields.get("add_to"), name="add_to")
    if not added:
        raise Refused(400, "at least one recipient is required")
    for address in added:
        if any(batch.names(fold(address)) for batch in record.add_to):
            raise Refused(400, f'already added: "{address}"')
    if record.terminal:
        raise Refused(409, "message is terminal")
    batch = Batch(batch_id=core.state.take_batch_id(), adder=caller, to=[Recipient(addr=address) for address in added])
    if not record.is_draft:
        core.courier.refuse_here(record, batch.to)
    record.add_to.append(batch)
    if record.sha256 is not None:
        batch.time_s = core.state.stamp(after=record)
        batch.sha256 = batch_hash(record.sha256, batch)
    core.state.index(record)
    core.state.save(record)
    if not record.is_draft:
        core.announce("recipients_added", record, list(record.participants().values()))
        core.courier.dispatch(record, batch=batch)
    return batch


def mark_read(core: Core, caller: str, record: Record) -> float:
    """``POST /fmsg/{id}/read``: when the caller first did so."""
    folded = fold(caller)
    if not record.is_recipient(folded) or not core.sees(record, caller):
        raise Refused(404, "message not found")
    if folded not in record.reads:
        record.reads[folded] = round(core.clock(), 6)
        core.state.save(record)
    return record.reads[folded]


def lineage(core: Core, record: Record) -> list[Record]:
    """The message and its ancestors, root first."""
    line = [record]
    while line[-1].pid is not None:
        parent = core.state.messages.get(line[-1].pid)
        if parent is None:
            break
        line.append(parent)
    return line[::-1]
