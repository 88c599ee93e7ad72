"""Who a reply goes to, what it answers, and whether it may (FMSG-007, Behavioural Rules)."""

from __future__ import annotations

from fmsg.address import fold
from fmsg.message import Message, participants
from mcp_front.failures import ToolFailure


def reply_all(message: Message, caller: str) -> tuple[str, ...]:
    """Everybody who takes part in the message itself, each once, except the caller."""
    everyone = participants(from_=message.from_, to=message.to, add_to=message.add_to)
    return tuple(address for address in everyone if fold(address) != fold(caller))


def parent_of(message: Message, caller: str) -> int | str:
    """What a reply names as its parent: the message, or the batch by which alone the caller takes part (FMSG-003).

    An older host gives batches no hash; there the message's id is right.
    """
    me = fold(caller)
    if me in {fold(message.from_), *map(fold, message.to or ())}:
        return message.id
    for batch in message.add_to or ():
        if batch.sha256 and me in map(fold, batch.to or ()):
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
