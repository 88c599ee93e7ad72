"""JSON of the Web API as values; the decoders are built once. Raises `HostMisbehaved` for what cannot be understood."""

from __future__ import annotations

import logging
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from fmsg.errors import HostMisbehaved
from fmsg.message import Message, Page

log = logging.getLogger(__name__)

T = TypeVar("T")


_known_faults: set[str] = set()
_MAX_KNOWN_FAULTS = 100
"""Faults name fields and types, so there are few kinds; a host that invents more is not worth the memory."""


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
        self._decode = msgspec.json.Decoder(kind).decode
        self._what = what

    def __call__(self, data: bytes) -> T:
        try:
            return self._decode(data)
        except msgspec.DecodeError as error:
            fault = _fault(error)
        raise HostMisbehaved(f"the host's {self._what} cannot be understood ({fault}). Is this the Web API's URL?")


def _fault(error: msgspec.DecodeError) -> str:
    """The library's reason: it names fields and types, never values of the message."""
    return str(error)[:200]


_items = msgspec.json.Decoder(tuple[msgspec.Raw, ...] | None).decode
_page = msgspec.json.Decoder(tuple[Message, ...] | None).decode
_message = msgspec.json.Decoder(Message).decode
_read_message = JsonReader(Message, "message")


def read_message(data: bytes | msgspec.Raw, *, message_id: int | None = None) -> Message:
    """One message. ``message_id`` fills in the id, which ``GET /fmsg/{id}`` leaves out."""
    message = _tidy(_read_message(bytes(data)))
    return message if message_id is None else replace(message, id=message_id)


def read_page(data: bytes, *, host_time_s: float | None) -> Page:
    """A list page. A message that cannot be understood is left out and counted; the others are still there."""
    try:
        messages, skipped = _page(data) or (), 0
        if not all(message.id for message in messages):
            raise msgspec.ValidationError
    except msgspec.DecodeError:
        messages, skipped = _one_by_one(data)
    return Page(messages=tuple(map(_tidy, messages)), host_time_s=host_time_s, skipped=skipped)


def _one_by_one(data: bytes) -> tuple[tuple[Message, ...], int]:
    try:
        items = _items(data) or ()
    except msgspec.DecodeError as error:
        fault = _fault(error)
    else:
        understood = []
        for item in items:
            try:
                message = _message(item)
            except msgspec.DecodeError as error:
                note_fault("left out a list item", _fault(error))
            else:
                if message.id:
                    understood.append(message)
        return tuple(understood), len(items) - len(understood)
    raise HostMisbehaved(f"the host's list cannot be understood ({fault}). Is this the Web API's URL?")


def _tidy(message: Message) -> Message:
    """``pid`` 0 means none."""
    return replace(message, pid=None) if message.pid == 0 else message
