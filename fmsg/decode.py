"""JSON of the Web API as values, bounded in time and memory. Raises `HostMisbehaved` for what cannot be understood.

A host is never trusted to be well formed. `fmsg.http` bounds the bytes of an answer by its route; here the entries and,
with the types of `fmsg.message`, the lengths are bounded, and long answers are decoded item by item, so that one call
into C is short and the event loop runs in between.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from fmsg.errors import HostMisbehaved
from fmsg.message import AddToBatch, Message, MessageId, Page, Thread, ThreadMessage, digest
from fmsg.pieces import at_once, in_pieces

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_ENTRIES = 101
"""A page has at most 100 messages, a thread 101 (FMSG-003, Routes). More is no answer to what was asked."""

MAX_ITEM_BYTES = 1024 * 1024
"""The JSON of one message without its body. 255 recipients with their deliveries take some 60 kB; twenty add-to batches
of that size fit. A message beyond it is left out."""

STEP_BYTES = 128 * 1024
"""After so many decoded bytes others are served: less than 5 ms, whatever the bytes say."""

MAX_DEPTH = 64
"""What a host nests deeper than this is dropped: no field of the Web API is deeper than five."""

UNREADABLE = (msgspec.DecodeError, RecursionError)
"""What the decoder raises for JSON that is not as expected, or too deep to read."""

_known_faults: set[str] = set()
_MAX_KNOWN_FAULTS = 100
"""Faults name fields and types, so there are few kinds. A host that invents more is not worth the memory."""


def note_fault(what: str, fault: str) -> None:
    """Log what could not be understood: a kind of fault as a warning once, then for debugging only.

    A message that cannot be read is met again with every list and by every recipient, and must not fill the log.
    """
    level = logging.DEBUG
    if fault not in _known_faults and len(_known_faults) < _MAX_KNOWN_FAULTS:
        _known_faults.add(fault)
        level = logging.WARNING
    log.log(level, "%s: %s", what, fault, extra={"action": "skip_unreadable"})


class JsonReader(Generic[T]):
    """Decodes one kind of answer; ``what`` names it in errors."""

    def __init__(self, kind: type[T], what: str) -> None:
        self.decode = msgspec.json.Decoder(kind).decode
        self._what = what

    def __call__(self, data: bytes | msgspec.Raw) -> T:
        try:
            return self.decode(data)
        except UNREADABLE as error:
            fault = _fault(error)
        raise HostMisbehaved(f"the host's {self._what} cannot be understood ({fault}). Is this the Web API's URL?")


def _fault(error: Exception) -> str:
    """The library's reason: it names fields and types, never values of the message."""
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]


_Entries: Any = msgspec.defstruct(
    "_Entries",
    [(f"entry_{n}", msgspec.Raw, msgspec.Raw(b"")) for n in range(MAX_ENTRIES)],
    array_like=True,
    forbid_unknown_fields=True,
)
"""A list of undecoded items. As an array of known length it is given up at the first item too many, before a million
of them take memory."""

_ThreadHead: Any = msgspec.defstruct(
    "_ThreadHead",
    [("root_id", MessageId), ("trigger_id", MessageId), ("complete", bool, True), ("messages", _Entries | None, None)],
)

_read_entries = JsonReader(_Entries | None, "list")
_read_thread_head = JsonReader(_ThreadHead, "thread")
_decode_message = msgspec.json.Decoder(Message).decode
_decode_thread_message = msgspec.json.Decoder(ThreadMessage).decode
_read_message = JsonReader(Message, "message")


def read_message(data: bytes | msgspec.Raw, *, message_id: int | None = None) -> Message:
    """One message. ``message_id`` fills in the id, which ``GET /fmsg/{id}`` leaves out."""
    message = _tidy(_read_message(data))
    return message if message_id is None else replace(message, id=message_id)


async def read_page(data: bytes, *, host_time_s: float | None) -> Page:
    """A list page. A message that cannot be understood is left out and counted; the others are still there."""
    work = _page(data, host_time_s)
    return at_once(work) if len(data) <= STEP_BYTES else await in_pieces(work)


async def read_thread(data: bytes) -> Thread:
    """A lineage. A message that cannot be understood is one that is not visible."""
    work = _thread(data)
    return at_once(work) if len(data) <= STEP_BYTES else await in_pieces(work)


def _page(data: bytes, host_time_s: float | None) -> Generator[None, None, Page]:
    entries = yield from _tolerant(_read_entries, data)
    items = _filled(entries)
    understood: list[Message] = []
    for item in items:
        message = _item(item, _decode_message)
        if message is not None and message.id:
            understood.append(_tidy(message))
        if memoryview(item).nbytes > STEP_BYTES // 8:
            yield
    return Page(messages=tuple(understood), host_time_s=host_time_s, skipped=len(items) - len(understood))


def _thread(data: bytes) -> Generator[None, None, Thread]:
    head = yield from _tolerant(_read_thread_head, data)
    messages: list[ThreadMessage] = []
    items = _filled(head.messages)
    for item in items:
        message = _item(item, _decode_thread_message, limit=len(data))
        if message is not None:
            messages.append(replace(message, message_sha256=digest(message.message_sha256), add_to=_batches(message)))
        if memoryview(item).nbytes > STEP_BYTES // 8:
            yield
    complete = head.complete and len(messages) == len(items)
    return Thread(root_id=head.root_id, trigger_id=head.trigger_id, complete=complete, messages=tuple(messages))


def _item(item: msgspec.Raw, decode: Callable[[msgspec.Raw], T], *, limit: int = MAX_ITEM_BYTES) -> T | None:
    try:
        if memoryview(item).nbytes > limit:
            raise msgspec.ValidationError(f"it is longer than {limit} bytes")
        return decode(item)
    except UNREADABLE as error:
        note_fault("left out an item", _fault(error))
        return None


def _filled(entries: Any) -> list[msgspec.Raw]:
    return [] if entries is None else [item for item in astuple(entries) if memoryview(item).nbytes]


def _tolerant(read: JsonReader[Any], data: bytes) -> Generator[None, None, Any]:
    """The answer, without what is nested too deeply where that hinders reading it."""
    try:
        return read.decode(data)
    except RecursionError:
        data = yield from _shallow(data)
    except msgspec.DecodeError:
        pass
    return read(data)


_TOKEN = re.compile(rb'[\[\]{}]|"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_OPENING = frozenset(b"[{")
_STEP_TOKENS = 20_000


def _shallow(data: bytes) -> Generator[None, None, bytes]:
    """The JSON with everything emptied that stands deeper than `MAX_DEPTH`."""
    kept: list[bytes] = []
    depth = start = 0
    for n, token in enumerate(_TOKEN.finditer(data)):
        first = data[token.start()]
        if first in _OPENING:
            depth += 1
            if depth == MAX_DEPTH:
                kept.append(data[start : token.end()])
        elif first != 0x22:
            if depth == MAX_DEPTH:
                start = token.start()
            depth -= 1
        if n % _STEP_TOKENS == _STEP_TOKENS - 1:
            yield
    kept.append(data[start:])
    return b"".join(kept)


def _tidy(message: Message) -> Message:
    """``pid`` 0 means none, and a hash that is none is left out."""
    if message.pid != 0 and message.sha256 is None and not message.add_to:
        return message
    return replace(message, pid=message.pid or None, sha256=digest(message.sha256), add_to=_batches(message))


def _batches(message: Message | ThreadMessage) -> tuple[AddToBatch, ...]:
    return tuple(
        batch if batch.sha256 is None else replace(batch, sha256=digest(batch.sha256)) for batch in message.add_to or ()
    )
