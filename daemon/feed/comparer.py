"""The comparison of the host's list with the ledger, one at a time, and the events that it shows to be lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Iterable

import msgspec

from daemon.feed.context import Feed, FeedContext
from daemon.feed.copy import LedgerCopy
from daemon.feed.diagnosis import diagnose
from fmsg.errors import FmsgError
from fmsg.webapi import WebApi
from ledger.catch_up import CaughtUp, catch_up
from ledger.port import LedgerError
from ledger.values import Arrival, CallerKey, Source
from telemetry.logs import SELDOM
from telemetry.metrics import LOST_EVENT_DELAY, LOST_EVENTS, RECONCILES

log = logging.getLogger(__name__)

MOST_PAGES = 200
"""List pages that one walk compares: twenty thousand messages. A walk that ends before everything is known is followed
by one that may be twice as long, so that it gets there however much there is."""

MAX_SUSPECTS = 256
"""Kept per feed; a host whose listener is deaf can lose thousands, and some of them tell the story."""


class LossDetector:
    """Tells a lost event from one that the list merely overtook: a suspect that is pushed after all is none."""

    __slots__ = ("_suspects",)

    def __init__(self) -> None:
        self._suspects: dict[int, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._suspects)

    def found(self, late: Iterable[tuple[Arrival, float]], *, waiting: Container[object], now_s: float) -> bool:
        """Messages that only the list showed, each with how late (seconds); whether any of them is suspect.

        ``waiting`` holds the ids that were pushed and are being written. Reactions are no suspects: hosts push their
        subject instead (FMSG-003, WebSocket).
        """
        suspect = False
        for seen, late_s in late:
            pushed = seen.id in waiting
            if not pushed and not seen.reaction and len(self._suspects) < MAX_SUSPECTS:
                self._suspects[seen.id] = (now_s, late_s)
                suspect = True
        return suspect

    def pushed(self, message_id: int) -> None:
        """The message was pushed."""
        if self._suspects:
            self._suspects.pop(message_id, None)

    def lost(self, now_s: float, *, grace_s: float) -> list[float]:
        """The suspects that were not pushed within ``grace_s``, as how late each was found. Each is told once."""
        gone = [id_ for id_, (found_s, _) in self._suspects.items() if found_s + grace_s <= now_s]
        return [self._suspects.pop(id_)[1] for id_ in gone]

    def clear(self) -> None:
        """The socket closed: it can no longer show which suspects were merely late."""
        self._suspects.clear()


class Comparer:
    """Compares one caller's list with its ledger and finds out what the socket lost."""

    __slots__ = ("_address", "_api", "_caller", "_copy", "_ctx", "_feed", "_task", "losses")

    def __init__(
        self, ctx: FeedContext, caller: CallerKey, address: str, api: WebApi, copy: LedgerCopy, feed: Feed
    ) -> None:
        self.losses = LossDetector()
        """What the socket is suspected to have lost."""
        self._ctx = ctx
        self._caller = caller
        self._address = address
        self._api = api
        self._copy = copy
        self._feed = feed
        self._task: asyncio.Task[None] | None = None

    def start(self, source: Source, *, pages: int = 1, fresh: bool = False) -> None:
        """Compare. ``fresh``: what a comparison under way finds does not count, since it began too early."""
        if self._task is not None:
            if not fresh:
                return
            self._task.cancel()
        self._task = self._ctx.spawn(self._compare(source, pages))

    def cancel(self) -> asyncio.Task[None] | None:
        """End the comparison under way; the feed does not hear of it. Returns the task that is ending, if any."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        return task

    def reconciled(self, result: CaughtUp, *, waiting: Container[object]) -> bool:
        """A comparison behind a healthy socket; whether it leaves a suspicion to be looked at in ``lost_grace_s``."""
        outcome = "began" if result.began else "found" if result.new else "clean"
        RECONCILES.labels(outcome).inc()
        late = [(one, result.late_s(one)) for one in result.new]
        return self.losses.found(late, waiting=waiting, now_s=asyncio.get_running_loop().time())

    def count_losses(self) -> bool:
        """Count the suspects that were not pushed in time. Returns whether some are still to be looked at."""
        lost = self.losses.lost(asyncio.get_running_loop().time(), grace_s=self._ctx.settings.lost_grace_s)
        for late_s in lost:
            LOST_EVENTS.inc()
            LOST_EVENT_DELAY.observe(late_s)
        if lost:
            log.warning(
                "the host's socket lost events",
                extra={
                    "action": "events_lost",
                    "caller": self._caller,
                    "count": len(lost),
                    "late_s": max(lost),
                    **SELDOM,
                },
            )
            self._ctx.events_lost()
        return len(self.losses) > 0

    async def _compare(self, source: Source, pages: int) -> None:
        me = asyncio.current_task()
        result: CaughtUp | None = None
        try:
            result = await self._walk(source, pages, most=MOST_PAGES)
            most = MOST_PAGES
            while not result.complete:
                if self._task is not me:
                    return
                self._feed.far_behind()
                most *= 2
                result = _joined(result, await self._walk(source, pages, most=most))
        except (FmsgError, LedgerError) as error:
            diagnosis = diagnose(error)
        except Exception as error:
            log.exception(
                "comparing list and ledger failed", extra={"action": "compare_failed", "source": source, **SELDOM}
            )
            diagnosis = diagnose(error)
        if self._task is not me:
            return
        self._task = None
        if result is not None and result.complete:
            self._ctx.host_met(self._caller, None)
            self._feed.compared(result, source)
            await self._follow(result)
            return
        if source == "reconcile":
            RECONCILES.labels("failed").inc()
        self._ctx.host_met(self._caller, diagnosis)
        self._feed.compare_failed(diagnosis, source)

    async def _follow(self, result: CaughtUp) -> None:
        try:
            await self._copy.follow(result.state)
        except LedgerError:
            log.debug("the copy of a ledger waits for the store", extra={"action": "copy_put_off"})

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
                image=self._copy.image,
            )


def _joined(one: CaughtUp, other: CaughtUp) -> CaughtUp:
    """Two comparisons, one after the other, as one."""
    return msgspec.structs.replace(
        other,
        new=(*one.new, *other.new),
        pages=one.pages + other.pages,
        began_with=one.began_with or other.began_with,
    )
