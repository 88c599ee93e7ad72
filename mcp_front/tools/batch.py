"""The messages of a wait's batch, fetched as the caller who asks, in as few requests as there can be.

One message: one request. Several: one page of the host's list, which has the newest, and the rest singly. A body that
does not fit into a list entry is fetched too, the topic of a thread once per process, a thread where it is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from fmsg.errors import Forbidden, NotFound
from fmsg.message import Message
from ledger.values import START, Arrival
from mcp_front.bodies import NO_TEXT, BodyText, body_text
from mcp_front.caller import Caller
from mcp_front.gather import gather_bounded, gather_with
from mcp_front.limits import UNBOUNDED_ROOM, AnswerRoom, OverBudget
from mcp_front.lineage import Lineage, lineage
from mcp_front.render import Fields, message_item
from mcp_front.topics import TOPICS
from mcp_front.waiting.decide import thread_of

THREAD_SHOWN = 20
"""Messages of the thread before the batch that include_thread brings."""

BODY_BYTES = 32_768
"""Of one body; get_message gives more."""
BUDGET_BYTES = 65_536
"""Of all bodies of a batch, some 16,000 tokens: agents' programs cut results, many at 25,000, and with the end of one
its position would be gone. What does not fit comes with the next call."""
ITEM_BYTES = 600
"""Counted for a message besides its body."""
PAGE_HEADROOM = 10
"""Asked of the list above the batch: what arrived meanwhile stands on top of it."""
HOST_PAGE = 100

READABLE_DELAYS_S = (0.2, 0.4, 0.8, 1.6)
"""A message can be announced an instant before it is readable (FMSG-003, WebSocket, 4)."""


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the batch; ``message`` is None where the host does not give it (any more)."""

    arrival: Arrival
    message: Message | None
    body: BodyText

    def item(self) -> Fields:
        """The message item with its body; of an unreadable one, what the ledger knows."""
        if self.message is None:
            arrival = self.arrival
            stub = Message(
                id=arrival.id,
                pid=arrival.pid,
                from_=arrival.from_,
                no_reply=arrival.no_reply,
                terminal=arrival.terminal,
                time=arrival.sent_at_s,
            )
            return message_item(stub) | {"body": None, "body_truncated": False, "unreadable": True}
        return message_item(self.message, with_preview=False) | {
            "body": self.body.text,
            "body_truncated": self.body.truncated,
        }


class FetchedBatch:
    """Fetches for one wait. What it has fetched it keeps, should the wait ask again with another batch."""

    def __init__(
        self,
        caller: Caller,
        *,
        include_thread: bool = False,
        answer: AnswerRoom = UNBOUNDED_ROOM,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``answer``: where memory for the bodies is reserved."""
        self.lineage: Lineage | None = None
        """The lineage of the batch's last message, where it was asked for and the host gives it."""
        self._caller = caller
        self._include_thread = include_thread
        self._answer = answer
        self._sleep = sleep
        self._got: dict[int, Fetched] = {}

    async def fit(self, arrivals: Sequence[Arrival]) -> int:
        """Fetch the batch and its topic; how many of its messages, from the first on, one result takes: one or more."""
        wanted = [arrival for arrival in arrivals if arrival.id not in self._got]
        root_id, ids = thread_of(arrivals[0]), {arrival.id for arrival in arrivals}
        if not self._include_thread:
            await gather_with(self._fetch(wanted), self._ask_topic(root_id, ids))
            return self._fitting(arrivals)
        await self._fetch(wanted)
        count = self._fitting(arrivals)
        self.lineage = await self._lineage(arrivals[count - 1].id, root_id, most=THREAD_SHOWN + count)
        await self._ask_topic(root_id, ids)  # the lineage mostly has it
        return count

    def _fitting(self, arrivals: Sequence[Arrival]) -> int:
        used_bytes = 0
        for count, arrival in enumerate(arrivals):
            text = self._got[arrival.id].body.text or ""
            used_bytes += ITEM_BYTES + len(text.encode())
            if used_bytes > BUDGET_BYTES and count:
                return count
        return len(arrivals)

    def fetched(self, arrivals: Sequence[Arrival]) -> list[Fetched]:
        """The messages of a batch that `fit` has seen, in order."""
        return [self._got[arrival.id] for arrival in arrivals]

    def topic(self, root_id: int | None) -> str:
        """The thread's topic, as far as it is known; empty where the host shows none."""
        return "" if root_id is None else TOPICS.get(self._caller.key, root_id) or ""

    async def _ask_topic(self, root_id: int, fetched: set[int]) -> None:
        """Fetch the topic, unless it is known or comes with the batch."""
        if not root_id or root_id in fetched or TOPICS.get(self._caller.key, root_id) is not None:
            return
        try:
            topic = (await self._caller.api.message(root_id)).topic or ""
        except (NotFound, Forbidden):
            topic = ""
        TOPICS.put(self._caller.key, root_id, topic)

    async def _lineage(self, message_id: int, root_id: int, *, most: int) -> Lineage | None:
        async def look_up_root() -> int:
            return root_id

        try:
            found = await lineage(self._caller.api, message_id, most=most, look_up_root=look_up_root)
        except (NotFound, Forbidden):
            return None
        if found.complete or found.skipped:
            TOPICS.put(self._caller.key, found.root_id, found.messages[0].topic or "")
        return found

    async def _fetch(self, arrivals: Sequence[Arrival]) -> None:
        messages: dict[int, Message] = {}
        if len(arrivals) > 1 and arrivals[-1].at != START:  # What is older than the ledger is not on the newest page.
            limit = min(HOST_PAGE, len(arrivals) + PAGE_HEADROOM)
            page = await self._caller.api.list_received(limit=limit)
            messages = {message.id: message for message in page.messages if not message.is_draft}

        async def one(arrival: Arrival) -> Fetched:
            message = messages.get(arrival.id)
            if message is None:
                message = await self._readable(arrival.id)
            if message is None:
                return Fetched(arrival=arrival, message=None, body=NO_TEXT)
            if message.pid is None:
                TOPICS.put(self._caller.key, message.id, message.topic or "")
            return Fetched(arrival=arrival, message=message, body=await self._body(message))

        for fetched in await gather_bounded(one, arrivals):
            self._got[fetched.arrival.id] = fetched

    async def _body(self, message: Message) -> BodyText:
        try:
            await self._answer.reserve(min(message.size, BODY_BYTES))
            return await body_text(self._caller.api, message, max_bytes=BODY_BYTES)
        except (NotFound, Forbidden, OverBudget):
            return BodyText("", truncated=True)

    async def _readable(self, message_id: int) -> Message | None:
        """The message, waited for a little where it is not there; None where the host does not give it to the caller.

        That is no failure of the wait: it would meet the same message again with every call.
        """
        for delay_s in (*READABLE_DELAYS_S, None):
            try:
                message = await self._caller.api.message(message_id)
            except NotFound:
                message = None
            except Forbidden:
                return None
            if message is not None and not message.is_draft:
                return message
            if delay_s is not None:
                await self._sleep(delay_s)
        return None
