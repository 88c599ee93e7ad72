"""Messages and lineages as the Web API shows them to one viewer (FMSG-003, "Message object" and "thread/messages")."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from sandbox.records import DELIVERED, ELSEWHERE, Batch, Reacted, Recipient, Record, domain_of, lowered
from sandbox.switches import Switches

ATTACHMENT_TYPE = "application/octet-stream"
"""The type every attachment is stored with on current hosts."""


def rfc3339(posix_s: float) -> str:
    """POSIX seconds as an RFC 3339 UTC string with microseconds."""
    return datetime.fromtimestamp(posix_s, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def is_text(media_type: str) -> bool:
    """Text-like: ``text/*``, ``application/json``, ``*/*+json``."""
    essence = media_type.partition(";")[0].strip().lower()
    return essence.startswith("text/") or essence == "application/json" or essence.endswith("+json")


class Renderer:
    """Renders for one host. The domain decides which deliveries it knows, the switches which fields it has."""

    def __init__(self, domain: str, switches: Switches) -> None:
        self._domain = lowered(domain)
        self.switches = switches

    def message(self, record: Record, viewer: str, *, with_id: bool = True) -> dict[str, Any]:
        """The message object. ``viewer`` is the identity it is shown to."""
        switches = self.switches
        lower = lowered(viewer)
        read_s = record.reads.get(lower)
        fields: dict[str, Any] = {"id": record.id} if with_id else {}
        fields |= {
            "version": record.version,
            "has_pid": record.pid is not None,
            "has_add_to": bool(record.add_to),
            "important": record.important,
            "no_reply": record.no_reply,
            "deflate": record.wire_bytes is not None,
            "pid": record.pid,
            "from": record.from_,
            "to": self._list([recipient.addr for recipient in record.to]),
            "add_to": self._list([self.batch(record, batch) for batch in record.add_to]),
            "time": record.time_s,
            "topic": record.topic,
            "type": record.type,
            "size": self._size(record),
            "read": read_s is not None,
            "time_read": read_s,
            "attachments": self._list(
                [{"filename": item.filename, "size": len(item.data)} for item in record.attachments]
            ),
        }
        short = self._short_text(record)
        if short:
            fields["short_text"] = short
        if switches.to_delivery:
            fields["to_delivery"] = self._list([self._delivery(record, item) for item in record.to])
        if switches.terminal:
            fields["terminal"] = record.terminal
        if switches.reactions:
            fields["reaction"] = record.reaction
            fields["reactions"] = _reactions(record)
        if switches.hashes:
            fields |= {"sha256": record.sha256, "psha256": record.pid_hash}
        return fields

    def batch(self, record: Record, batch: Batch, *, in_thread: bool = False) -> dict[str, Any]:
        """An add-to batch."""
        fields: dict[str, Any] = {
            "batch_id": batch.batch_id,
            "add_to_from": batch.adder,
            "to": [recipient.addr for recipient in batch.to],
            "time": batch.time_s,
        }
        if in_thread and self.switches.thread_delivery_null:
            fields["to_delivery"] = None
        elif self.switches.to_delivery:
            fields["to_delivery"] = [self._delivery(record, item) for item in batch.to]
        if self.switches.hashes:
            fields["sha256"] = batch.sha256
        return fields

    def thread_message(self, record: Record) -> tuple[dict[str, Any], int]:
        """A visible message of a lineage, and the bytes of text in it."""
        text = _text_of(record)
        body: dict[str, Any] = {"type": record.type, "size": self._size(record)}
        if text is None:
            body["download"] = f"/fmsg/{record.id}/data"
        else:
            body["text"] = text
        body["cacheable"] = not record.is_draft
        fields: dict[str, Any] = {
            "id": record.id,
            "visible": True,
            "pid": record.pid,
            "from": record.from_,
            "to": [recipient.addr for recipient in record.to],
            "add_to": [self.batch(record, batch, in_thread=True) for batch in record.add_to],
            "time": record.time_s,
            "topic": record.topic,
            "type": record.type,
            "size": self._size(record),
            "deflate": record.wire_bytes is not None,
            "no_reply": record.no_reply,
            "important": record.important,
            "body": self._trim(body),
            "attachments": [
                {
                    "position": position,
                    "type": ATTACHMENT_TYPE,
                    "filename": item.filename,
                    "size": len(item.data),
                    "download": f"/fmsg/{record.id}/attach/{quote(item.filename, safe='')}",
                }
                for position, item in enumerate(record.attachments)
            ],
        }
        if self.switches.terminal:
            fields["terminal"] = record.terminal
        if self.switches.hashes and record.sha256 is not None:
            fields["message_sha256"] = record.sha256
        return self._trim(fields), len(record.data) if text is not None else 0

    def _size(self, record: Record) -> int:
        """On the sender's host the body's length. On another host its length on the wire, which may be compressed."""
        received = domain_of(record.from_) != self._domain
        return record.wire_bytes if received and record.wire_bytes is not None else len(record.data)

    def _trim(self, fields: dict[str, Any]) -> dict[str, Any]:
        if not self.switches.thread_omits_empty:
            return fields
        return {name: value for name, value in fields.items() if value not in (None, False, "", [], 0) or name == "id"}

    def _list(self, items: list[Any]) -> list[Any] | None:
        return items or (None if self.switches.null_lists else [])

    def _delivery(self, record: Record, recipient: Recipient) -> dict[str, Any]:
        at_home = domain_of(record.from_) == self._domain
        if recipient.delivered_at_s is not None:
            code = DELIVERED if at_home and self.switches.sender_code_200 else None
            when = rfc3339(recipient.delivered_at_s)
            return {"addr": recipient.addr, "time_delivered": when, "response_code": code}
        code = recipient.code
        if code is None and not at_home and domain_of(recipient.addr) != self._domain:
            code = ELSEWHERE
        return {"addr": recipient.addr, "time_delivered": None, "response_code": code}

    def _short_text(self, record: Record) -> str | None:
        longest = self.switches.short_text_bytes
        if not longest or not record.type.lower().startswith("text/"):
            return None
        return record.text(longest)


def _reactions(record: Record) -> list[dict[str, Any]]:
    by_emoji: dict[str, list[str]] = {}
    for reacted in sorted(record.reactions.values(), key=_when):
        if reacted.emoji:
            by_emoji.setdefault(reacted.emoji, []).append(reacted.addr)
    return [{"emoji": emoji, "from": addresses} for emoji, addresses in by_emoji.items()]


def _when(reacted: Reacted) -> float:
    return reacted.time_s


def _text_of(record: Record) -> str | None:
    return record.text() if is_text(record.type) else None


def lineage_text(lineage: list[tuple[Record, bool]]) -> str:
    """``GET /fmsg/{id}/thread``: root first, a head and the text of each message. Hidden ones are only named."""
    parts = []
    for record, visible in lineage:
        if not visible:
            parts.append(f"[message {record.id} is not visible to you]\n")
            continue
        when = "draft" if record.time_s is None else rfc3339(record.time_s)
        head = [f"From: {record.from_}", f"To: {', '.join(recipient.addr for recipient in record.to)}", f"Date: {when}"]
        head += [f"Topic: {record.topic}"] if record.topic else []
        head += [f"Attachment: {item.filename} ({len(item.data)} bytes)" for item in record.attachments]
        text = _text_of(record)
        body = text if text is not None else f"[{record.type}, {len(record.data)} bytes]"
        parts.append("\n".join(head) + f"\n\n{body}\n")
    return "\n----\n\n".join(parts)
