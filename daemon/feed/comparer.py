"""The comparison of the host's list with the ledger, one at a time, and what it tells of the socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container
from typing import Protocol

import msgspec

from daemon.feed.context import FeedContext
from daemon.feed.diagnosis import Diagnosis, diagnose
from daemon.feed.losses import LossDetector
from fmsg.errors import FmsgError
from fmsg.webapi import WebApi
from ledger.catch_up import CaughtUp, catch_up
from ledger.port import LedgerError
from ledger.values import CallerKey, Source
from telemetry.metrics import LOST_EVENT_DELAY, LOST_EVENTS, RECONCILES

log = logging.getLogger(__name__)

MOST_PAGES = 200
"""List pages that one walk compares: twenty thousand messages. A walk that ends before everything is known is followed
by one that may be twice as long, so that it gets there however much there is."""


class Owner(Protocol):
    """The feed, as its comparisons see it."""

    def compared(self, result: CaughtUp, source: Source) -> None:
        """A comparison is complete: everything listed is known."""
        ...

    def far_behind(self) -> None:
        """So much is not known yet that the comparison goes on for long; it will be told of as any other."""
        ...

    def compare_failed(self, diagnosis: Diagnosis, source: Source, *, store_failed: bool) -> None:
        """A comparison could not be made."""
        ...


class Comparer:
    """Compares one caller's list with its ledger and finds out what the socket lost."""

    __slots__ = ("_address", "_api", "_caller", "_ctx", "_losses", "_owner", "_task")

    def __init__(self, ctx: FeedContext, caller: CallerKey, address: str, api: WebApi, owner: Owner) -> None:
        self._ctx = ctx
        self._caller = caller
        self._address = address
        self._api = api
        self._owner = owner
        self._losses = LossDetector()
        self._task: asyncio.Task[None] | None = None

    def start(self, source: Source, *, pages: int = 1, fresh: bool = False) -> None:
        """Compare. ``fresh``: what a comparison under way finds does not count, since it began too early."""
        if self._task is not None:
            if not fresh:
                return
            self._task.cancel()
        self._task = self._ctx.spawn(self._compare(source, pages))

    def cancel(self) -> asyncio.Task[None] | None:
        """End the comparison under way; the owner does not hear of it. Returns the task that is ending, if any."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        return task

    def pushed(self, message_id: int) -> None:
        """The socket pushed a message."""
        self._losses.pushed(message_id)

    def socket_closed(self) -> None:
        """What the socket would still have pushed nobody will know."""
        self._losses.clear()

    def reconciled(self, result: CaughtUp, *, waiting: Container[object]) -> bool:
        """A comparison behind a healthy socket; whether it leaves a suspicion to be looked at in ``lost_grace_s``."""
        outcome = "began" if result.began else "found" if result.new else "clean"
        RECONCILES.labels(outcome).inc()
        late = [(seen, result.late_s(seen)) for seen in result.found_late]
        return self._losses.found(late, waiting=waiting, now_s=asyncio.get_running_loop().time())

    def count_losses(self) -> bool:
        """Count the suspects that nobody pushed in time; whether some are still to be looked at."""
        grace_s = self._ctx.settings.lost_grace_s
        lost = self._losses.lost(asyncio.get_running_loop().time(), grace_s=grace_s)
        for late_s in lost:
            LOST_EVENTS.inc()
            LOST_EVENT_DELAY.observe(late_s)
        if lost:
            log.warning(
                "the host's socket lost events",
                extra={"action": "events_lost", "caller": self._caller, "count": len(lost), "late_s": max(lost)},
            )
            self._ctx.watcher.lost()
        return len(self._losses) > 0

    async def _compare(self, source: Source, pages: int) -> None:
        me = asyncio.current_task()
        result: CaughtUp | None = None
        store_failed = False
        try:
            result = await self._walk(source, pages, most=MOST_PAGES)
            most = MOST_PAGES
            while not result.complete:
                if self._task is not me:
                    return
                self._owner.far_behind()
                most *= 2
                result = _joined(result, await self._walk(source, pages, most=most))
        except (FmsgError, LedgerError) as error:
            store_failed = isinstance(error, LedgerError)
            diagnosis = diagnose(error)
        except Exception as error:
            log.exception("comparing list and ledger failed", extra={"action": "compare_failed", "source": source})
            diagnosis = diagnose(error)
        if self._task is not me:
            return
        self._task = None
        if result is not None and result.complete:
            self._owner.compared(result, source)
            return
        if source == "reconcile":
            RECONCILES.labels("failed").inc()
        self._owner.compare_failed(diagnosis, source, store_failed=store_failed)

    async def _walk(self, source: Source, pages: int, *, most: int) -> CaughtUp:
        async with self._ctx.listing:
            return await catch_up(
                self._api,
                self._ctx.ledger,
                self._caller,
                self._address,
                source=source,
                min_pages=pages,
                max_pages=most,
                seed_limit=self._ctx.settings.seed_limit,
            )


def _joined(one: CaughtUp, other: CaughtUp) -> CaughtUp:
    """Two comparisons, one after the other, as one."""
    return msgspec.structs.replace(
        other,
        new=(*one.new, *other.new),
        pages=one.pages + other.pages,
        found_late=(*one.found_late, *other.found_late),
        rootless=(*one.rootless, *other.rootless),
        began=one.began or other.began,
    )
