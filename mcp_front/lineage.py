"""A message's lineage, root first: from the host's thread answer, or by walking ``pid`` where it gives none.

Older hosts have no thread route (404); current ones refuse lineages that are too deep (422) or too large (413) for one
answer (FMSG-003).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from fmsg.errors import Forbidden, HostRefused, NotFound
from fmsg.message import Message, ThreadBody, ThreadMessage, participants
from mcp_front.framing import visible
from mcp_front.render import text_like

if TYPE_CHECKING:
    from fmsg.webapi import WebApi

MOST_ANCESTORS = 200
"""Walked one request each: twice the depth at which hosts give up. A deeper lineage is reported as incomplete."""

RootLookup = Callable[[], Awaitable[int]]
"""Gives the root of a message's thread without asking the host; 0 where it is not known."""

_NO_THREAD_ANSWER = frozenset({404, 413, 422})


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """The messages from the root to ``trigger``. ``complete`` is False where an ancestor is missing.

    ``skipped``: those between the root and the one after it were not asked for.
    """

    root_id: int
    trigger: ThreadMessage
    complete: bool
    skipped: bool = False
    messages: tuple[ThreadMessage, ...]

    @property
    def topic(self) -> str | None:
        """The thread's topic; None where its root is not visible."""
        root = self.messages[0]
        return visible(root.topic or "") if root.visible and root.id == self.root_id else None

    def participants_but(self, caller: str) -> tuple[str, ...]:
        """Everybody who takes part in the trigger, except the caller."""
        everyone = participants(from_=self.trigger.from_, to=self.trigger.to, add_to=self.trigger.add_to)
        return tuple(address for address in everyone if address != caller.lower())


async def lineage(api: WebApi, message_id: int, *, most: int, look_up_root: RootLookup) -> Lineage:
    """The lineage of a message. Raises what the Web API raises for the message itself.

    Where it has to be walked and its root is known, the root and the newest, ``most`` in all: two agents that talk for
    long make a thread that no host gives as a whole, and each look at it would take hundreds of requests.
    """
    try:
        thread = await api.thread(message_id)
    except HostRefused as error:
        if error.status not in _NO_THREAD_ANSWER:
            raise
        return await _walked(api, message_id, most, look_up_root)
    messages = thread.messages or ()
    trigger = next((message for message in messages if message.id == message_id), None)
    if trigger is None:
        return await _walked(api, message_id, most, look_up_root)
    return Lineage(root_id=thread.root_id, trigger=trigger, complete=thread.complete, messages=messages)


async def _walked(api: WebApi, message_id: int, most: int, look_up_root: RootLookup) -> Lineage:
    trigger = from_message(await api.message(message_id))
    root_id = await look_up_root()
    upwards = [trigger]
    met = {trigger.id}
    complete, skipped = True, False
    while not skipped and (parent := upwards[-1].pid) is not None:
        if len(upwards) > MOST_ANCESTORS or parent in met:
            complete = False
            break
        if root_id and len(upwards) >= most - 1 and parent != root_id:
            parent, complete, skipped = root_id, False, True
        try:
            upwards.append(from_message(await api.message(parent)))
        except (NotFound, Forbidden):
            upwards.append(ThreadMessage(id=parent, visible=False))
            complete = False
        met.add(parent)
    return Lineage(
        root_id=upwards[-1].id,
        trigger=trigger,
        complete=complete,
        skipped=skipped,
        messages=tuple(reversed(upwards)),
    )


def from_message(message: Message) -> ThreadMessage:
    """A message of the ``GET`` route in the form of the thread route."""
    text = message.whole_text() if text_like(message.type) else None
    return ThreadMessage(
        id=message.id,
        pid=message.pid,
        from_=message.from_,
        to=message.to,
        add_to=message.add_to,
        time=message.time,
        topic=message.topic,
        type=message.type,
        size=message.size,
        no_reply=message.no_reply,
        important=message.important,
        terminal=message.terminal,
        message_sha256=message.sha256,
        body=ThreadBody(type=message.type, size=message.size, text=text),
        attachments=message.attachments,
    )


def to_message(message: ThreadMessage) -> Message:
    """The other way round, for what shows messages. What a thread answer does not know (read, reactions) is empty."""
    return Message(
        id=message.id,
        pid=message.pid,
        from_=message.from_,
        to=message.to,
        add_to=message.add_to,
        time=message.time,
        topic=message.topic,
        type=message.type or (message.body.type if message.body else ""),
        size=message.size or (message.body.size if message.body else 0),
        no_reply=message.no_reply,
        important=message.important,
        terminal=message.terminal,
        sha256=message.message_sha256,
        attachments=message.attachments,
        short_text=message.body.text if message.body else None,
    )
