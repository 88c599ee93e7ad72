"""Draft, attachments, send: all of it or nothing left behind (FMSG-007, Atomic send).

What can go wrong, and what is done:

- before the send: the draft is deleted; where that fails too, a deferred task deletes it later;
- the send is refused: likewise;
- the answer to the send is lost: the draft is looked at. It has a time → sent. It has none → it is deleted, which no
  later send can survive, so it is certain that nothing went out. It cannot be looked at → the outcome is unknown and
  said so, a deferred task settles it, and nothing is ever sent a second time from here;
- the process dies: the deferred task left when the draft was made deletes it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from fmsg.errors import (
    Conflict,
    FmsgError,
    Forbidden,
    HostMisbehaved,
    HostRefused,
    HostUnreachable,
    NotFound,
    Transient,
)
from fmsg.message import AttachmentInfo, Draft, Message
from ledger.deadlines import BEST_EFFORT_S, answered_within
from ledger.port import DeferredTask, DeferredTasks, LedgerError
from ledger.values import CallerKey
from mcp_front.failures import ToolFailure
from mcp_front.sending.compose import Outgoing
from mcp_front.shield import shielded

if TYPE_CHECKING:
    from fmsg.webapi import WebApi

log = logging.getLogger(__name__)

DRAFT_LIFE_S = 3600.0
"""A draft that is still one after an hour belongs to a process that died: the largest upload is done long before."""

RETRY_DELETE_S = 60.0
"""First try of a worker to delete a draft that could not be deleted here."""

SETTLE_S = 30.0
"""When a worker first looks at a send whose outcome is unknown: a host's restart is over by then."""

LOOK_DELAYS_S = (0.5, 1.0, 2.0)
"""Between looks at a draft after a lost answer: a cut connection is back at once, a restarting proxy in seconds."""

RECENT_DRAFTS = 10
"""Of the newest sent messages, looked through for a draft whose creation was not answered."""


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """A sent message: its id, the host's time, and its attachments by the names the host gave them."""

    id: int
    time_s: float
    attachments: tuple[AttachmentInfo, ...]


class Steps(Protocol):
    """Told of what happens, so that a repeated call can go on from there. The first two may raise to stop the send."""

    async def drafted(self, draft_id: int) -> None:
        """The draft exists."""
        ...

    async def sending(self) -> None:
        """The send comes next."""
        ...

    async def sent(self, delivered: Delivered) -> None:
        """The message is out. Raises nothing."""
        ...


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """One caller's way out: the Web API, and the deferred tasks for what has to be done later."""

    api: WebApi
    deferred: DeferredTasks
    caller: CallerKey
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def deliver(self, outgoing: Outgoing, steps: Steps | None = None) -> Delivered:
        """Send the message. Raises what the host said (then nothing was sent), or `ToolFailure` ``outcome_unknown``."""
        made: list[int] = []
        try:
            await shielded(self._create(outgoing.draft(), made))
            draft_id = made[0]
            if steps is not None:
                await steps.drafted(draft_id)
            attachments = [
                await self.api.attach(draft_id, upload.filename, upload.content(), content_type=upload.content_type)
                for upload in outgoing.uploads
            ]
            if steps is not None:
                await steps.sending()
        except BaseException:
            for draft_id in made:
                await shielded(self.discard(draft_id))
            raise
        return await shielded(self._finish(draft_id, tuple(attachments), steps))

    async def hold(
        self, draft: Draft, filename: str, chunks: AsyncIterator[bytes], *, for_s: float
    ) -> tuple[int, AttachmentInfo]:
        """Put a file on a draft that will not be sent, and have it deleted after ``for_s`` seconds.

        Raises what the host said; then nothing is left.
        """
        made: list[int] = []
        try:
            await shielded(self._create(draft, made))
            attached = await self.api.attach(made[0], filename, chunks, content_type="application/octet-stream")
            await self._leave("delete_draft", made[0], due_in_s=for_s)
        except BaseException:
            for draft_id in made:
                await shielded(self.discard(draft_id))
            raise
        return made[0], attached

    async def settle(self, draft_id: int) -> Message | None:
        """What became of a draft: the message if it was sent, None once it is certain that it never will be.

        Raises `ToolFailure` ``outcome_unknown`` where the host does not tell.
        """
        try:
            message = await self._look(draft_id)
            if message is None or message.is_draft:
                return await self._withdrawn(draft_id)
        except FmsgError as error:
            await self._leave("settle_send", draft_id, due_in_s=SETTLE_S)
            raise _unknown(draft_id, error) from error
        return message

    async def discard(self, draft_id: int) -> None:
        """Delete a draft that will not be sent; leave it to a worker where that fails. Raises nothing."""
        try:
            await self.api.delete_draft(draft_id)
        except NotFound:
            pass
        except FmsgError:
            await self._leave("delete_draft", draft_id, due_in_s=RETRY_DELETE_S)
            return
        await self._done("delete_draft", draft_id)

    async def _create(self, draft: Draft, made: list[int]) -> None:
        """Create the draft and put its id into ``made``, where whoever is cancelled meanwhile still finds it."""
        try:
            draft_id = await self.api.create_draft(draft)
        except (HostUnreachable, HostMisbehaved) as error:
            if not isinstance(error, HostUnreachable) or error.sent:
                await self._discard_unanswered(draft)
            raise
        made.append(draft_id)
        await self._leave("delete_draft", draft_id, due_in_s=DRAFT_LIFE_S)

    async def _discard_unanswered(self, draft: Draft) -> None:
        """Delete the draft of a creation that was not answered, if it is to be found. Best effort: it is not sent."""
        try:
            page = await self.api.list_sent(limit=RECENT_DRAFTS)
        except FmsgError:
            return
        for message in page.messages:
            if message.is_draft and _same(message, draft):
                await self.discard(message.id)
                return

    async def _finish(self, draft_id: int, attachments: tuple[AttachmentInfo, ...], steps: Steps | None) -> Delivered:
        delivered = Delivered(id=draft_id, time_s=await self._send(draft_id), attachments=attachments)
        if steps is not None:
            await steps.sent(delivered)
        return delivered

    async def _send(self, draft_id: int) -> float:
        try:
            time_s = (await self.api.send(draft_id)).time
        except (Transient, Conflict) as error:
            sent = await self.settle(draft_id)
            if sent is None or sent.time is None:
                raise error from None
            time_s = sent.time
        except FmsgError:
            await self.discard(draft_id)
            raise
        await self._done("delete_draft", draft_id)
        return time_s

    async def _look(self, draft_id: int) -> Message | None:
        """The draft as the host has it now, None where it is gone. Tries again for a few seconds."""
        for delay_s in (*LOOK_DELAYS_S, None):
            try:
                return await self.api.message(draft_id)
            except NotFound:
                return None
            except Transient:
                if delay_s is None:
                    raise
                await self.sleep(delay_s)
        raise AssertionError("the last try returns or raises")

    async def _withdrawn(self, draft_id: int) -> Message | None:
        """None once the draft is deleted; the message where a send was faster than the deletion."""
        try:
            await self.api.delete_draft(draft_id)
        except NotFound:
            pass
        except (Forbidden, Conflict):
            message = await self._look(draft_id)
            if message is not None and not message.is_draft:
                return message
            raise
        await self._done("delete_draft", draft_id)
        return None

    async def _leave(self, kind: str, draft_id: int, *, due_in_s: float) -> None:
        task = DeferredTask(kind=kind, caller=self.caller, message_id=draft_id, due_s=self.clock() + due_in_s)
        try:
            with answered_within(BEST_EFFORT_S):
                await self.deferred.add(task)
        except LedgerError:
            log.warning(
                "deferred task not left", extra={"action": "deferred_task_lost", "task": kind, "caller": self.caller}
            )

    async def _done(self, kind: str, draft_id: int) -> None:
        task = DeferredTask(kind=kind, caller=self.caller, message_id=draft_id, due_s=0.0)
        try:
            with answered_within(BEST_EFFORT_S):
                await self.deferred.done(task)
        except LedgerError:
            log.warning(
                "deferred task not taken back",
                extra={"action": "deferred_task_kept", "task": kind, "caller": self.caller},
            )


def _same(message: Message, draft: Draft) -> bool:
    return (
        {address.lower() for address in message.to or ()} == {address.lower() for address in draft.to}
        and message.size == draft.size
        and (message.topic or "") == (draft.topic or "")
        and message.type == draft.type
        and (message.pid is None) == (draft.pid is None)
        and (message.short_text is None or (draft.data or "").startswith(message.short_text))
    )


def _unknown(draft_id: int, error: FmsgError) -> ToolFailure:
    return ToolFailure(
        "outcome_unknown",
        f"It is not known whether message {draft_id} was sent: the host did not answer.",
        next_step=f'Do not send it again yet. Look with get_message, id "{draft_id}": a time means it was sent, a null '
        "time or 404 that it was not (an unsent draft is deleted by itself).",
        host_text=error.reason if isinstance(error, HostRefused) else None,
        id=str(draft_id),
    )
