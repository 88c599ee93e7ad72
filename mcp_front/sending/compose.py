"""A message before it goes out: who gets it, what it answers, and its text without credentials (FMSG-007)."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Generator

import msgspec

from fmsg.errors import BadInput
from fmsg.message import Draft, Message, participants
from fmsg.pieces import at_once, in_pieces
from fmsg.redact import quoted, redact_long
from fmsg.transfer import check_media_type
from mcp_front.failures import ToolFailure
from mcp_front.sending.uploads import Upload, refuse_credential

DEFAULT_TYPE = "text/markdown; charset=utf-8"
"""FMSG-007, send_message."""

PIECE_CHARS = 256 * 1024
"""Of a text encoded and hashed at once: about a millisecond."""

_CHARSET = re.compile(r"charset\s*=\s*[\"']?([^\s;\"']*)", re.IGNORECASE)
MOST_PLACEHOLDER_CHARS = 60
_PLACEHOLDER = re.compile(r"\[redacted ([^\]]{1,40})\]")


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message. ``parent`` is what the host is told (an id or a batch's hash), ``parent_id`` its id.

    ``redactions`` credentials were replaced in topic and body, of the kinds in ``redacted``.
    """

    from_: str
    to: tuple[str, ...]
    topic: str
    body: str
    size_bytes: int
    """Of the body in UTF-8."""
    type: str
    important: bool
    no_reply: bool
    parent: int | str | None
    parent_id: int | None
    uploads: tuple[Upload, ...]
    redactions: int
    redacted: frozenset[str]

    def draft(self) -> Draft:
        """The draft to create. A reply has no topic (FMSG-003)."""
        return Draft(
            from_=self.from_,
            to=self.to,
            type=self.type,
            size=self.size_bytes,
            data=self.body,
            pid=self.parent,
            topic=self.topic or None,
            important=self.important,
            no_reply=self.no_reply,
        )


async def compose(
    *,
    from_: str,
    to: tuple[str, ...],
    body: str,
    topic: str = "",
    type_: str = DEFAULT_TYPE,
    important: bool = False,
    no_reply: bool = False,
    parent: int | str | None = None,
    parent_id: int | None = None,
    uploads: tuple[Upload, ...] = (),
) -> Outgoing:
    """The message with every credential in topic and body replaced. Raises `BadInput` for a type that is none."""
    _check_type(type_)
    clean_topic, clean_body = await cleaned(topic), await cleaned(body)
    size_bytes, _ = await measured(clean_body.text, argument="body")
    return Outgoing(
        from_=from_,
        to=to,
        topic=clean_topic.text,
        body=clean_body.text,
        size_bytes=size_bytes,
        type=type_,
        important=important,
        no_reply=no_reply,
        parent=parent,
        parent_id=parent_id,
        uploads=uploads,
        redactions=clean_topic.count + clean_body.count,
        redacted=clean_topic.kinds | clean_body.kinds,
    )


class Cleaned(msgspec.Struct, frozen=True):
    """A text without credentials, how many were replaced, and of which kinds."""

    text: str
    count: int = 0
    kinds: frozenset[str] = frozenset()


async def cleaned(text: str) -> Cleaned:
    """The text with every credential replaced."""
    clean, count = await redact_long(text)
    if not count:
        return Cleaned(text)
    found = await in_pieces(_placeholders(clean))
    found.subtract(await in_pieces(_placeholders(text)))
    return Cleaned(clean, count, frozenset(+found))


def _placeholders(text: str) -> Generator[None, None, Counter[str]]:
    """How often each kind of credential is named in a placeholder, which a sender may also have written."""
    found: Counter[str] = Counter()
    for start in range(0, len(text), PIECE_CHARS):
        end = start + PIECE_CHARS
        places = _PLACEHOLDER.finditer(text, start, end + MOST_PLACEHOLDER_CHARS)
        found.update(place[1] for place in places if place.start() < end)
        yield
    return found


def _check_type(text: str) -> None:
    refuse_credential(text, argument="type")
    charset = _CHARSET.search(check_media_type(text, name="type"))
    if charset is not None and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise BadInput(f"type: the body is sent as UTF-8, not as {quoted(charset[1])}. Write charset=utf-8.")


async def measured(text: str, *, argument: str) -> tuple[int, str]:
    """The size of the text in UTF-8 and its SHA-256, made in pieces. Raises `BadInput` for half a surrogate pair."""
    work = _measuring(text)
    try:
        return at_once(work) if len(text) <= PIECE_CHARS else await in_pieces(work)
    except UnicodeEncodeError:
        pass
    raise BadInput(f"{argument}: holds half a surrogate pair, which is no text. Send the whole character.")


def _measuring(text: str) -> Generator[None, None, tuple[int, str]]:
    size, digest = 0, hashlib.sha256()
    for start in range(0, len(text), PIECE_CHARS):
        data = text[start : start + PIECE_CHARS].encode()
        size += len(data)
        digest.update(data)
        yield
    return size, digest.hexdigest()


def reply_all(message: Message, caller: str) -> tuple[str, ...]:
    """Everybody who takes part in the message itself, each once, except the caller."""
    everyone = participants(from_=message.from_, to=message.to, add_to=message.add_to)
    return tuple(address for address in everyone if address != caller.lower())


def parent_of(message: Message, caller: str) -> int | str:
    """What a reply names as its parent: the message, or the batch by which alone the caller takes part (FMSG-003).

    An older host gives batches no hash; there the message's id is right.
    """
    me = caller.lower()
    if me in {address.lower() for address in (message.from_, *(message.to or ()))}:
        return message.id
    for batch in message.add_to or ():
        if batch.sha256 and me in (address.lower() for address in batch.to or ()):
            return batch.sha256
    return message.id


def refuse_terminal(message: Message, doing: str) -> None:
    """Nothing can be built on a terminal message. Raises `ToolFailure`."""
    if message.terminal:
        raise ToolFailure(
            "refused_here",
            f"Message {message.id} is terminal: it takes no {doing}.",
            next_step="To say something to its participants, start a new thread with send_message.",
            id=str(message.id),
        )


def refuse_no_reply(message: Message, *, allowed: bool) -> None:
    """The sender wants no reply. Raises `ToolFailure` unless the caller insists."""
    if message.no_reply and not allowed:
        raise ToolFailure(
            "refused_here",
            f"Message {message.id} asks for no reply.",
            next_step="Leave it, or pass allow_no_reply: true if a reply is meant all the same.",
            id=str(message.id),
        )
