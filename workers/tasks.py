"""Deferred tasks: drafts that a failed send left behind, and sends whose outcome is unknown.

Both end the same way. What was sent is let be; what is still a draft is deleted, which no later send survives; what is
gone is gone. A deferred task waits for its caller's next request where there is no token now.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from fmsg.backoff import backoff_s
from fmsg.errors import Conflict, CredentialMissing, FmsgError, Forbidden, NotFound, Unauthorized
from fmsg.message import Message
from ledger.port import DeferredTask, DeferredTasks
from telemetry.logs import SELDOM
from telemetry.metrics import DEFERRED_TASKS, JOBS
from workers.callers import Callers
from workers.queue import do_each
from workers.settings import WorkerSettings

log = logging.getLogger(__name__)

KINDS = ("delete_draft", "settle_send")

FIRST_DELAY_S = 60.0
MAX_DELAY_S = 3600.0
"""Between the attempts at one deferred task, doubling: a caller without a token comes back in minutes or tomorrow."""

Outcome = Literal["sent", "deleted", "gone"]


class DraftApi(Protocol):
    """What deferred tasks need of `fmsg.webapi.WebApi`."""

    async def message(self, message_id: int) -> Message:
        """One message."""
        ...

    async def delete_draft(self, message_id: int) -> None:
        """Delete a draft."""
        ...


class DeferredTaskRunner:
    """Does the deferred tasks that are due."""

    def __init__(
        self,
        deferred: DeferredTasks,
        callers: Callers,
        *,
        settings: WorkerSettings,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        self._deferred = deferred
        self._callers = callers
        self._settings = settings
        self._clock = clock
        self._rng = rng or random.Random()

    async def run(self) -> str:
        """Do what is due, some at a time. Raises `TryLater` where the store is in trouble."""
        due = await self._deferred.due(self._settings.deferred_at_once)
        DEFERRED_TASKS.set(await self._deferred.depth())

        async def one(task: DeferredTask) -> None:
            JOBS.labels(task.kind if task.kind in KINDS else "unknown", await self._do(task)).inc()

        await do_each(due, one, at_once=self._settings.concurrency)
        return "done" if due else "idle"

    async def _do(self, task: DeferredTask) -> str:
        """One task; a word for the outcome. It is put off before it is begun, so that a crash loses nothing."""
        if task.kind not in KINDS:
            log.warning("unknown deferred task dropped", extra={"action": "deferred_task_unknown", "task": task.kind})
            await self._deferred.done(task)
            return "dropped"
        delay_s = backoff_s(task.attempts + 1, self._rng, base_s=FIRST_DELAY_S, cap_s=MAX_DELAY_S, least=0.5)
        await self._deferred.add(
            msgspec.structs.replace(task, due_s=self._clock() + delay_s, attempts=task.attempts + 1)
        )
        standing = await self._callers.find(task.caller)
        if standing is None:
            return "no_token"
        try:
            outcome: str = await clear_away(standing.api, task.message_id)
        except Forbidden as error:
            # Never to be retried: the caller may not even look at it.
            outcome = "refused"
            log.warning(
                "deferred task refused: %s",
                error,
                extra={"action": "deferred_task_refused", "task": task.kind, **SELDOM},
            )
        except (Unauthorized, CredentialMissing):
            return "no_token"
        except FmsgError as error:
            log.info(
                "deferred task put off: %s",
                error,
                extra={"action": "deferred_task_put_off", "task": task.kind, **SELDOM},
            )
            return "put_off"
        for kind in KINDS:
            await self._deferred.done(msgspec.structs.replace(task, kind=kind))
        return outcome


async def clear_away(api: DraftApi, message_id: int) -> Outcome:
    """Delete a message if it is still a draft; what had become of it. Raises `fmsg.errors.FmsgError`."""
    try:
        if not (await api.message(message_id)).is_draft:
            return "sent"
        try:
            await api.delete_draft(message_id)
        except (Forbidden, Conflict):
            # Sent in between? Hosts refuse to delete what was sent (FMSG-003).
            if (await api.message(message_id)).is_draft:
                raise
            return "sent"
    except NotFound:
        return "gone"
    return "deleted"
