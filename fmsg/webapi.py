"""The routes of FMSG-003 as one caller uses them."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from fmsg.answers import SMALL_BYTES, Answer
from fmsg.decode import MAX_ITEM_BYTES, JsonReader, read_message, read_page, read_thread
from fmsg.errors import AnswerTooLong, BadInput, HostFailed, HostRefused, NotFound, Unauthorized
from fmsg.events import HEARTBEAT_S, MAX_FRAME_BYTES, EventSocket
from fmsg.http import HostHttp
from fmsg.message import Added, AttachmentInfo, Draft, Message, Page, Reacted, ReadMark, Sent, Thread, digest
from fmsg.pieces import in_pieces
from fmsg.tokens import TokenSource
from fmsg.transfer import Body, Download, check_stored_name, file_form

__all__ = ["Added", "Body", "Download", "Reacted", "ReadMark", "Sent", "WebApi"]

T = TypeVar("T")

MAX_PAGE = 100
"""The largest page. Hosts clamp a larger limit silently, which then looks like the end of the list."""

MAX_PAGE_BYTES = 8 * 1024 * 1024
"""A hundred messages with 255 recipients each and all their deliveries are shorter."""

MAX_THREAD_BYTES = 32 * 1024 * 1024
"""Hosts refuse threads with more text than this (FMSG-003, Routes). Finding the messages in it is one call into C of
some 20 ms, and 100 ms where a host fills it with brackets."""

PIECE_CHARS = 256 * 1024
"""Of a body written as JSON at once: about a millisecond."""

MAX_BODY_BYTES = 64 * 1024 * 1024
"""What `WebApi.body` keeps in memory at most, several times what hosts accept as a message."""


class _Created(msgspec.Struct, frozen=True):
    id: int


_read_created = JsonReader(_Created, "answer to a draft")
_read_sent = JsonReader(Sent, "answer to a send")
_read_mark = JsonReader(ReadMark, "read mark")
_read_added = JsonReader(Added, "answer to added recipients")
_read_reacted = JsonReader(Reacted, "answer to a reaction")
_read_attached = JsonReader(AttachmentInfo, "answer to an attachment")


class WebApi:
    """A host's Web API as one caller.

    Every method raises what `fmsg.errors` lists. After a 401 a request is repeated once with a new token. Nothing else
    is repeated here.
    """

    def __init__(self, http: HostHttp, tokens: TokenSource) -> None:
        self._http = http
        self._tokens = tokens

    def __repr__(self) -> str:
        return f"WebApi({self._http!r}, {self._tokens!r})"

    async def address(self) -> str:
        """The address requests act as, lower case."""
        return (await self._tokens.token()).address

    async def list_received(self, *, limit: int = 20, offset: int = 0) -> Page:
        """Received messages, newest id first, at most `MAX_PAGE`: reactions among them, and on current hosts drafts."""
        return await self._page("list_received", "/fmsg", limit, offset)

    async def list_sent(self, *, limit: int = 20, offset: int = 0) -> Page:
        """Authored messages, newest id first, drafts included."""
        return await self._page("list_sent", "/fmsg/sent", limit, offset)

    async def message(self, message_id: int) -> Message:
        """One message, its id filled in. A draft of somebody else is `NotFound`, even where the host shows it."""
        answer = await self._call("message", "GET", f"/fmsg/{message_id}", max_bytes=MAX_ITEM_BYTES)
        message = read_message(answer.data, message_id=message_id)
        if message.is_draft:
            await self._check_own(message.from_)
        return message

    async def body(self, message_id: int, *, max_bytes: int | None = None) -> Body:
        """The body's bytes; at most ``max_bytes`` of them, and then the rest is not fetched."""
        limit = MAX_BODY_BYTES if max_bytes is None else max_bytes
        data = bytearray()
        async with self._download("body", f"/fmsg/{message_id}/data") as download:
            async for chunk in download.chunks:
                data += chunk
                if len(data) > limit:
                    return Body(data=bytes(data[:limit]), truncated=True)
        return Body(data=bytes(data), truncated=False)

    async def thread(self, message_id: int) -> Thread:
        """The lineage from the root to the message.

        `NotFound` also where the host is older than this route. A lineage longer than `MAX_THREAD_BYTES` is refused as
        a host refuses one that is too large for it (413): its messages can be read one by one.
        """
        path = f"/fmsg/{message_id}/thread/messages"
        try:
            answer = await self._call("thread", "GET", path, max_bytes=MAX_THREAD_BYTES)
        except AnswerTooLong:
            raise HostRefused(413, "thread too large", code="thread_too_large") from None
        thread = await read_thread(answer.data)
        for message in thread.messages or ():
            if message.visible and message.from_ and message.time is None:
                await self._check_own(message.from_)
        return thread

    async def _check_own(self, sender: str) -> None:
        """Current hosts show drafts to the recipients they name (FMSG-003 as met), who are none before it is sent."""
        if sender.lower() != await self.address():
            raise NotFound(404, "message not found")

    async def create_draft(self, draft: Draft) -> int:
        """Create a draft; its id stays the message's id.

        A 5xx to a draft that goes beyond the protocol is a `HostRefused` that names what does.
        """
        try:
            answer = await self._call("create_draft", "POST", "/fmsg", content=await _draft_json(draft))
        except HostFailed as error:
            excess = draft.excess()
            if excess is None:
                raise
            failed = error
        else:
            return _read_created(answer.data).id
        # Some hosts answer as if they had failed (FMSG-003 as met), and trying again would not help.
        raise HostRefused(failed.status, f"{failed.reason} ({excess})", code=failed.code)

    async def delete_draft(self, message_id: int) -> None:
        """Delete a draft; a sent message is `Forbidden`."""
        await self._call("delete_draft", "DELETE", f"/fmsg/{message_id}")

    async def send(self, message_id: int) -> Sent:
        """Send a draft. After `HostUnreachable` with ``sent`` its outcome is unknown."""
        return _read_sent((await self._call("send", "POST", f"/fmsg/{message_id}/send")).data)

    async def mark_read(self, message_id: int) -> ReadMark:
        """Mark a received message as read; again is harmless."""
        return _read_mark((await self._call("mark_read", "POST", f"/fmsg/{message_id}/read")).data)

    async def add_recipients(self, message_id: int, add_to: Sequence[str]) -> Added:
        """Add recipients to a message."""
        content = _json({"add_to": list(add_to)})
        added = _read_added((await self._call("add_to", "POST", f"/fmsg/{message_id}/add-to", content=content)).data)
        return replace(added, sha256=digest(added.sha256))

    async def react(self, message_id: int, emoji: str | None) -> Reacted:
        """React with one emoji; None or "" clears (FMSG-005)."""
        content = _json({"emoji": emoji or None})
        answer = await self._call("react", "POST", f"/fmsg/{message_id}/react", content=content)
        reacted = _read_reacted(answer.data)
        return replace(reacted, sha256=digest(reacted.sha256))

    async def attach(
        self, message_id: int, filename: str, data: bytes | AsyncIterable[bytes], *, content_type: str
    ) -> AttachmentInfo:
        """Attach a file to a draft. The host may change the name: the returned one counts.

        Raises `BadInput` for a name that no host can take or give back. A stream can be read once only, so a 401 while
        it is uploaded is final.
        """
        path = f"/fmsg/{message_id}/attach"

        async def upload(bearer: str) -> Answer:
            return await self._http.upload(
                "attach", path, bearer=bearer, form=file_form(filename, data, content_type=content_type)
            )

        if isinstance(data, bytes):
            answer = await self._with_token(upload)
        else:
            answer = await upload((await self._tokens.token()).value)
        return _read_attached(answer.data)

    @asynccontextmanager
    async def attachment(self, message_id: int, filename: str) -> AsyncIterator[Download]:
        """An attachment that is read while it comes. Raises `BadInput` for what is no file's name.

        Of somebody else's draft it is `NotFound`, as the draft is.
        """
        segment = quote(check_stored_name(filename), safe="")
        async with self._download("attachment", f"/fmsg/{message_id}/attach/{segment}") as download:
            await self.message(message_id)
            yield download

    @asynccontextmanager
    async def events(self) -> AsyncIterator[EventSocket]:
        """The caller's event socket."""

        async def connect(bearer: str) -> EventSocket:
            return EventSocket(
                await self._http.socket(
                    "/fmsg/ws", bearer=bearer, heartbeat_s=HEARTBEAT_S, max_frame_bytes=MAX_FRAME_BYTES
                )
            )

        socket = await self._with_token(connect)
        try:
            yield socket
        finally:
            await socket.close()

    async def _page(self, route: str, path: str, limit: int, offset: int) -> Page:
        answer = await self._call(route, "GET", f"{path}?limit={limit}&offset={offset}", max_bytes=MAX_PAGE_BYTES)
        return await read_page(answer.data, host_time_s=answer.host_time_s)

    async def _call(
        self, route: str, method: str, path: str, *, content: bytes | None = None, max_bytes: int = SMALL_BYTES
    ) -> Answer:
        async def call(bearer: str) -> Answer:
            return await self._http.call(route, method, path, bearer=bearer, content=content, max_bytes=max_bytes)

        return await self._with_token(call)

    @asynccontextmanager
    async def _download(self, route: str, path: str) -> AsyncIterator[Download]:
        async with AsyncExitStack() as stack:

            async def begin(bearer: str) -> Download:
                return await stack.enter_async_context(self._http.download(route, path, bearer=bearer))

            yield await self._with_token(begin)

    async def _with_token(self, request: Callable[[str], Awaitable[T]]) -> T:
        """The request with the caller's token, and once more with a new one where the host refuses that (FMSG-003)."""
        token = await self._tokens.token()
        try:
            return await request(token.value)
        except Unauthorized:
            pass
        return await request((await self._tokens.renew(token)).value)


async def _draft_json(draft: Draft) -> bytes:
    """The JSON of a draft, whose body may be large, made in pieces."""
    if draft.data is None or len(draft.data) <= PIECE_CHARS:
        return _json(draft.wire())
    fields = draft.wire()
    return await in_pieces(_encoding(fields, fields.pop("data")))


def _encoding(fields: dict[str, Any], data: str) -> Generator[None, None, bytes]:
    parts = [_json(fields)[:-1], b',"data":"']
    for start in range(0, len(data), PIECE_CHARS):
        parts.append(_json(data[start : start + PIECE_CHARS])[1:-1])
        yield
    return b"".join([*parts, b'"}'])


def _json(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        pass
    raise BadInput(
        "the text is not valid Unicode (it contains half of a surrogate pair). Send it without that character."
    )
