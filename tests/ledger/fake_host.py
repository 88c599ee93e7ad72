"""A host's lists and lineages without HTTP, counting what is asked of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import msgspec

from fmsg.errors import FmsgError, Forbidden, NotFound
from fmsg.message import AddToBatch, Message, Page, Thread, ThreadMessage

ME = "@me@here.test"
ANN = "@ann@there.test"


class FakeHost:
    """What `WebApi` would answer for the caller ``ME``, from messages in memory. The other fake host speaks HTTP."""

    def __init__(self, *, now_s: float | None = 1000.0) -> None:
        self.now_s = now_s
        self.messages: dict[int, Message] = {}
        self.hidden: set[int] = set()
        self.gone: set[int] = set()
        self.has_thread_route = True
        self.thread_error: FmsgError | None = None
        self.error: FmsgError | None = None
        """Raised by every route while set."""
        self.errors: dict[str, list[FmsgError]] = {}
        """Raised by a route one after the other."""
        self.latency_s = 0.0
        self.asked: Counter[str] = Counter()
        self.limits: list[int] = []
        self.after_page: Callable[[int], None] = lambda _page: None
        """Called with the number of each page once it is made."""

    def host_time_s(self) -> float | None:
        """The ``Date`` of answers."""
        return self.now_s

    def put(
        self,
        message_id: int,
        *,
        time_s: float | None = 0.0,
        pid: int | None = None,
        from_: str = ANN,
        to: tuple[str, ...] = (ME,),
        added_s: float | None = None,
        no_reply: bool = False,
        reaction: str | None = None,
    ) -> Message:
        """A message there is; ``time_s`` None makes it a draft, ``added_s`` adds the caller by a batch of that time."""
        batches = () if added_s is None else (AddToBatch(batch_id=1, add_to_from=from_, to=(ME,), time=added_s),)
        message = Message(
            id=message_id,
            pid=pid,
            has_pid=pid is not None,
            from_=from_,
            to=to if added_s is None else ("@someone@else.test",),
            add_to=batches,
            time=time_s,
            no_reply=no_reply,
            reaction=reaction,
        )
        self.messages[message_id] = message
        return message

    def send(self, message_id: int, *, time_s: float) -> None:
        """A draft is sent."""
        self.messages[message_id] = msgspec.structs.replace(self.messages[message_id], time=time_s)

    def received(self) -> list[Message]:
        """The list, newest id first, drafts included."""
        return self._newest_first(_is_for_me)

    async def list_received(self, *, limit: int = 20, offset: int = 0) -> Page:
        await self._ask("list_received")
        self.limits.append(limit)
        page = self._page(self.received(), limit, offset)
        self.after_page(self.asked["list_received"])
        return page

    async def list_sent(self, *, limit: int = 20, offset: int = 0) -> Page:
        await self._ask("list_sent")
        return self._page(self._newest_first(lambda message: message.from_ == ME), limit, offset)

    async def message(self, message_id: int) -> Message:
        await self._ask("message")
        return self._get(message_id)

    async def thread(self, message_id: int) -> Thread:
        await self._ask("thread")
        if not self.has_thread_route:
            raise NotFound(404, "404 page not found")
        if self.thread_error is not None:
            raise self.thread_error
        self._get(message_id)
        line: list[ThreadMessage] = []
        current: int | None = message_id
        while current is not None:
            message = self.messages.get(current)
            if message is None or current in self.gone:
                raise NotFound(404, "message not found")
            visible = current not in self.hidden
            line.insert(0, ThreadMessage(id=current, visible=visible, pid=message.pid if visible else None))
            current = message.pid
        complete = all(member.visible for member in line)
        return Thread(root_id=line[0].id, trigger_id=message_id, complete=complete, messages=tuple(line))

    async def delete_draft(self, message_id: int) -> None:
        await self._ask("delete_draft")
        if not self._get(message_id).is_draft:
            raise Forbidden(403, "message already sent")
        del self.messages[message_id]

    async def _ask(self, route: str) -> None:
        self.asked[route] += 1
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        if self.error is not None:
            raise self.error
        if self.errors.get(route):
            raise self.errors[route].pop(0)

    def _get(self, message_id: int) -> Message:
        if message_id in self.hidden:
            raise Forbidden(403, "access denied")
        if message_id not in self.messages or message_id in self.gone:
            raise NotFound(404, "message not found")
        return self.messages[message_id]

    def _newest_first(self, wanted: Callable[[Message], bool]) -> list[Message]:
        listed = [self.messages[id_] for id_ in sorted(self.messages, reverse=True)]
        return [message for message in listed if wanted(message) and message.id not in self.hidden]

    def _page(self, messages: list[Message], limit: int, offset: int) -> Page:
        return Page(messages=tuple(messages[offset : offset + min(limit, 100)]), host_time_s=self.host_time_s())


def _is_for_me(message: Message) -> bool:
    return ME in (message.to or ()) or any(ME in (batch.to or ()) for batch in message.add_to or ())
