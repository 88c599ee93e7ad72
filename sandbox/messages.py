"""What a caller does with messages: draft, send, add recipients, read, react. What a host refuses of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fmsg.address import is_address
from sandbox.core import Core
from sandbox.federation import dispatch, record_reaction, refuse_here
from sandbox.records import Batch, Recipient, Record, batch_hash, domain_of, lowered
from sandbox.store import MAX_ID
from sandbox.wire import RouteRefused, is_hash


def create_draft(core: Core, caller: str, fields: Mapping[str, Any]) -> Record:
    """``POST /fmsg``: store a draft and return it."""
    record = _draft(core, caller, fields, message_id=0)
    if not record.to:
        raise RouteRefused(400, "to list must not be empty")
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
    if lowered(record.from_) != lowered(caller):
        raise RouteRefused(403, "access denied")
    if not record.is_draft:
        raise RouteRefused(403, "message already sent")


def _draft(core: Core, caller: str, fields: Mapping[str, Any], *, message_id: int) -> Record:
    """The draft in these fields. It may be incomplete: `send` asks for what is missing. ``size`` is ignored."""
    version, media_type, topic = fields.get("version", 0), fields.get("type") or "", fields.get("topic") or ""
    if not isinstance(version, int) or not isinstance(media_type, str) or not isinstance(topic, str):
        raise RouteRefused(400, "invalid request body: version is a number, type and topic are strings")
    sender = fields.get("from")
    if not isinstance(sender, str) or lowered(sender) != lowered(caller):
        raise RouteRefused(403, "from address must match authenticated user")
    to = _addresses(fields.get("to"), name="to")
    pid = fields.get("pid")
    if pid is not None and topic:
        raise RouteRefused(400, "topic must be empty when pid is supplied")
    if len(topic) > core.limits.topic_bytes or "\0" in topic:
        raise _broken(core, "topic is too long or holds a NUL")
    record = Record(
        id=message_id,
        version=version,
        from_=caller,
        to=[Recipient(addr=address) for address in to],
        type=media_type,
        data=_body(core, fields),
        topic=topic,
        important=bool(fields.get("important")),
        no_reply=bool(fields.get("no_reply")),
        terminal=bool(fields.get("terminal")) and core.switches.terminal,
    )
    if not core.switches.broken_inputs_500 and (fault := _wire_fault(core, record)):
        raise RouteRefused(400, fault)
    if pid is not None:
        _link(core, record, pid)
    return record


def _broken(core: Core, text: str) -> RouteRefused:
    return RouteRefused(500, "failed to create message") if core.switches.broken_inputs_500 else RouteRefused(400, text)


def _wire_fault(core: Core, record: Record) -> str | None:
    """What does not fit on the wire, which has one byte for each of these lengths. None if all fits."""
    if len(record.topic.encode("utf-8", "surrogatepass")) > core.limits.topic_bytes:
        return f"topic is over {core.limits.topic_bytes} bytes"
    if any(len(to) > core.limits.recipients for to in [record.to, *(batch.to for batch in record.add_to)]):
        return f"over {core.limits.recipients} recipients"
    return None


def _addresses(value: object, *, name: str) -> list[str]:
    """The addresses of a list, each once."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise RouteRefused(400, f"invalid {name}")
    once: dict[str, str] = {}
    for address in value:
        if not isinstance(address, str) or not is_address(address):
            raise RouteRefused(400, f'invalid {name} address: "{address}"')
        once.setdefault(lowered(address), address)
    return list(once.values())


def _body(core: Core, fields: Mapping[str, Any]) -> bytes:
    data = fields.get("data") or ""
    if not isinstance(data, str):
        raise RouteRefused(400, "invalid data")
    body = data.encode("utf-8", "surrogatepass")
    if len(body) > core.limits.body_bytes:
        raise RouteRefused(413, "message data exceeds maximum size")
    return body


def _link(core: Core, record: Record, pid: object) -> None:
    parent, batch = _parent(core, pid)
    caller = lowered(record.from_)
    if not core.sees(parent, record.from_):
        raise RouteRefused(403, "not a participant of this parent; ask a participant to add you")
    if batch is not None:
        if not (parent.is_primary(caller) or batch.names(caller) or lowered(batch.adder) == caller):
            raise RouteRefused(403, "not a participant of this parent; this add-to batch does not name you")
    elif not parent.is_primary(caller) and core.switches.batch_reply_by_hash and core.switches.hashes:
        raise RouteRefused(
            403, "not a participant of this parent; use the sha256 of the add-to batch that names you as pid"
        )
    if parent.is_draft or parent.terminal:
        raise RouteRefused(409, "parent is a draft or terminal message")
    record.pid = parent.id
    record.pid_hash = batch.sha256 if batch is not None else parent.sha256
    if batch is None and not parent.is_primary(caller):
        record.pid_hash = next(item.sha256 for item in parent.add_to if item.names(caller))


def _parent(core: Core, pid: object) -> tuple[Record, Batch | None]:
    state = core.state
    batch: Batch | None = None
    if isinstance(pid, str) and is_hash(pid) and core.switches.hashes:
        message_id = state.by_hash.get(pid.lower())
        if message_id is None and pid.lower() in state.by_batch_hash:
            message_id, batch = state.by_batch_hash[pid.lower()]
    elif isinstance(pid, int) and not isinstance(pid, bool) and 0 < pid <= MAX_ID:
        message_id = pid
    else:
        raise RouteRefused(400, "pid must be a positive integer or a 64-character sha256 string")
    parent = state.messages.get(message_id) if message_id is not None else None
    if parent is None:
        raise RouteRefused(400, "parent message not found")
    return parent, batch


def send(core: Core, caller: str, record: Record) -> float:
    """``POST /fmsg/{id}/send``: the time it was sent. The id stays the draft's."""
    if lowered(record.from_) != lowered(caller):
        raise RouteRefused(403, "access denied")
    if not record.is_draft:
        raise RouteRefused(409, "message already sent")
    problems = [f"unsupported version {record.version}"] if record.version != 1 else []
    problems += [] if record.to else ["no recipients"]
    problems += [] if record.type else ["no type"]
    if problems:
        raise RouteRefused(400, f"message is not sendable: {'; '.join(problems)}")
    refuse_unknown_parents(core, record, "reply")
    if _wire_fault(core, record):
        raise RouteRefused(500, "failed to finalize message")
    publish(core, record)
    dispatch(core, record)
    assert record.time_s is not None  # noqa: S101 - publish has just set it
    return record.time_s


def publish(core: Core, record: Record) -> None:
    """Turn a stored draft into a message and tell its local recipients. Nothing is delivered elsewhere."""
    refuse_here(core, record, record.recipients())
    core.lead(record)
    parent = core.state.messages.get(record.pid) if record.pid is not None else None
    core.state.publish(record, core.state.stamp(after=parent))
    core.announce("new_msg", record, [item.addr for item in record.recipients()])


def refuse_unknown_parents(core: Core, record: Record, what: str) -> None:
    """409 for a reply or reaction to a domain that, as far as this host knows, does not have the parent.

    A domain whose delivery is under way, or was another host's, may have it: there the reply goes out, and is refused
    with code 6 where the parent is unknown.
    """
    parent = core.state.messages.get(record.pid) if record.pid is not None else None
    if parent is None:
        return
    holds: dict[str, bool] = {domain_of(parent.from_): True}
    for recipient in parent.recipients():
        domain = domain_of(recipient.addr)
        holds[domain] = holds.get(domain, False) or parent.reaches(recipient)
    refusing = []
    for domain in sorted({domain_of(recipient.addr) for recipient in record.recipients()} - {core.domain}):
        if domain not in holds:
            refusing.append(f"{domain}: the message being replied to was never addressed to this domain")
        elif not holds[domain]:
            refusing.append(f"{domain}: delivery of the message being replied to failed there")
    if refusing:
        raise RouteRefused(409, f"{what} cannot be accepted by recipient host(s): {'; '.join(refusing)}")


def add_recipients(core: Core, caller: str, record: Record, fields: Mapping[str, Any]) -> Batch:
    """``POST /fmsg/{id}/add-to``: the batch recorded."""
    lower = lowered(caller)
    if not record.is_primary(lower) or (record.is_draft and lowered(record.from_) != lower):
        raise RouteRefused(403, "only existing participants may add recipients")
    added = _addresses(fields.get("add_to"), name="add_to")
    if not added:
        raise RouteRefused(400, "add_to list must not be empty")
    if len(added) != len(fields["add_to"]):
        raise RouteRefused(400, "duplicate recipient in add_to")
    if len(added) > core.limits.recipients and not record.is_draft:
        raise RouteRefused(500, "failed to finalize add-to batch")
    for address in added:
        if any(batch.names(lowered(address)) for batch in record.add_to):
            raise RouteRefused(400, f'already added: "{address}"')
    if record.terminal:
        raise RouteRefused(409, "message is terminal")
    batch = Batch(batch_id=core.state.take_batch_id(), adder=caller, to=[Recipient(addr=address) for address in added])
    if not record.is_draft:
        refuse_here(core, record, batch.to)
    record.add_to.append(batch)
    if record.sha256 is not None:
        batch.time_s = core.state.stamp(after=record)
        batch.sha256 = batch_hash(record.sha256, batch)
    core.state.index(record)
    core.state.save(record)
    if not record.is_draft:
        core.announce("recipients_added", record, list(record.participants().values()))
        dispatch(core, record, batch=batch)
    return batch


def mark_read(core: Core, caller: str, record: Record) -> float:
    """``POST /fmsg/{id}/read``: when the caller first read it."""
    lower = lowered(caller)
    if not record.is_recipient(lower) or not core.sees(record, caller):
        raise RouteRefused(404, "message not found")
    if lower not in record.reads:
        record.reads[lower] = round(core.clock(), 6)
        core.state.save(record)
    return record.reads[lower]


def lineage(core: Core, record: Record) -> list[Record]:
    """The message and its ancestors, root first."""
    line = [record]
    while line[-1].pid is not None:
        parent = core.state.messages.get(line[-1].pid)
        if parent is None:
            break
        line.append(parent)
    return line[::-1]


MAX_EMOJI_BYTES = 64
"""The longest reaction (FMSG-005)."""

REACTION_TYPE = "text/plain;charset=UTF-8"
"""The media type of a reaction message (FMSG-005)."""

_PICTURE = (
    "[\u231a\u231b\u23e9-\u23ec\u23f0\u23f3\u25fd\u25fe\u2614\u2615\u2648-\u2653\u267f\u2693\u26a1\u26aa\u26ab"
    "\u26bd\u26be\u26c4\u26c5\u26ce\u26d4\u26ea\u26f2\u26f3\u26f5\u26fa\u26fd\u2705\u270a\u270b\u2728\u274c\u274e"
    "\u2753-\u2755\u2757\u2795-\u2797\u27b0\u27bf\u2b1b\u2b1c\u2b50\u2b55\U0001f004\U0001f0cf\U0001f18e"
    "\U0001f191-\U0001f19a\U0001f201\U0001f21a\U0001f22f\U0001f232-\U0001f236\U0001f238-\U0001f23a\U0001f250"
    "\U0001f251\U0001f300-\U0001f320\U0001f32d-\U0001f335\U0001f337-\U0001f37c\U0001f37e-\U0001f393"
    "\U0001f3a0-\U0001f3ca\U0001f3cf-\U0001f3d3\U0001f3e0-\U0001f3f0\U0001f3f4\U0001f3f8-\U0001f43e\U0001f440"
    "\U0001f442-\U0001f4fc\U0001f4ff-\U0001f53d\U0001f54b-\U0001f54e\U0001f550-\U0001f567\U0001f57a\U0001f595"
    "\U0001f596\U0001f5a4\U0001f5fb-\U0001f64f\U0001f680-\U0001f6c5\U0001f6cc\U0001f6d0-\U0001f6d2"
    "\U0001f6d5-\U0001f6d8\U0001f6dc-\U0001f6df\U0001f6eb\U0001f6ec\U0001f6f4-\U0001f6fc\U0001f7e0-\U0001f7eb"
    "\U0001f7f0\U0001f90c-\U0001f93a\U0001f93c-\U0001f945\U0001f947-\U0001f9ff\U0001fa70-\U0001fa7c"
    "\U0001fa80-\U0001fa8a\U0001fa8e-\U0001fac6\U0001fac8\U0001facd-\U0001fadc\U0001fadf-\U0001faea"
    "\U0001faef-\U0001faf8]"
)
"""Characters that are emoji by themselves (UTS #51, Emoji_Presentation)."""

_TEXT = "[#*0-9\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001f6ff]"
"""Where the characters are that are emoji only with U+FE0F or a skin tone, such as U+2764, the heart."""

_TONE = "[\U0001f3fb-\U0001f3ff]"
_ELEMENT = f"(?:{_PICTURE}(?:\ufe0f|{_TONE})?|{_TEXT}(?:\ufe0f\u20e3?|{_TONE}))"
_EMOJI = re.compile(
    "(?:[\U0001f1e6-\U0001f1ff]{2}"
    "|\U0001f3f4[\U000e0020-\U000e007e]{3,}\U000e007f"
    f"|{_ELEMENT}(?:\u200d{_ELEMENT})*)"
)


def is_single_emoji(text: str) -> bool:
    """Whether the text is one emoji: a flag, keycap, tag sequence or ZWJ sequence of emoji (UTS #51)."""
    return len(text.encode("utf-8", "surrogatepass")) <= MAX_EMOJI_BYTES and _EMOJI.fullmatch(text) is not None


def react(core: Core, caller: str, subject: Record, emoji: object) -> tuple[int, Record | None]:
    """``POST /fmsg/{id}/react``: the HTTP status and the reaction message that counts now, None where there is none."""
    if emoji is not None and not isinstance(emoji, str):
        raise RouteRefused(400, "emoji must be a single emoji, or empty to clear")
    wanted = emoji or ""
    if wanted and not is_single_emoji(wanted):
        raise RouteRefused(400, "emoji must be a single emoji, or empty to clear")
    lower = lowered(caller)
    if not core.sees(subject, caller):
        raise RouteRefused(403, "not a participant of this message")
    if subject.is_draft:
        raise RouteRefused(409, "message is a draft")
    if subject.terminal:
        raise RouteRefused(409, "message is terminal")
    others = [address for other, address in subject.participants().items() if other != lower]
    if not others:
        raise RouteRefused(409, "message has no other participant")
    current = subject.reactions.get(lower)
    if current is None and not wanted:
        return 200, None
    if current is not None and current.emoji == wanted:
        return 200, core.state.messages[current.message_id]
    return 201, _send(core, caller, subject, wanted, others)


def _send(core: Core, caller: str, subject: Record, emoji: str, others: list[str]) -> Record:
    lower = lowered(caller)
    pid_hash = subject.sha256
    if not subject.is_primary(lower):
        pid_hash = next((batch.sha256 for batch in subject.add_to if batch.names(lower)), pid_hash)
    data = emoji.encode()
    record = Record(
        id=core.state.take_id(),
        from_=caller,
        to=[Recipient(addr=address) for address in others],
        type=REACTION_TYPE,
        data=data,
        pid=subject.id,
        pid_hash=pid_hash,
        no_reply=True,
        terminal=True,
        reaction=emoji,
    )
    refuse_unknown_parents(core, record, "reaction")
    core.state.publish(record, core.state.stamp(after=subject))
    record_reaction(core, record)
    dispatch(core, record)
    return record
