"""The event socket of one caller: opened within the daemon's caps, read until it ends."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

from daemon.feed.context import Feed, FeedContext
from daemon.feed.diagnosis import diagnose
from fmsg.errors import FmsgError
from fmsg.webapi import WebApi
from ledger.port import LedgerError
from ledger.values import CallerKey
from telemetry.logs import SELDOM
from telemetry.metrics import SOCKET_CONNECTS, SOCKET_DISCONNECTS, SOCKETS

log = logging.getLogger(__name__)


class FeedSocket:
    """Opens and reads sockets, one at a time; the feed hears of the latest only."""

    __slots__ = ("_api", "_caller", "_ctx", "_feed", "_task")

    def __init__(self, ctx: FeedContext, caller: CallerKey, api: WebApi, feed: Feed) -> None:
        self._ctx = ctx
        self._caller = caller
        self._api = api
        self._feed = feed
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Open a socket and read it."""
        self._task = self._ctx.spawn(self._listen())

    def cancel(self) -> asyncio.Task[None] | None:
        """Close the socket; the feed does not hear of it. Returns the task that is ending, if any.

        May be called from within a callback.
        """
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        return task

    async def _listen(self) -> None:
        me = asyncio.current_task()
        opened = False
        try:
            async with AsyncExitStack() as stack:
                self._ctx.connects.in_flight += 1
                try:
                    socket = await stack.enter_async_context(self._api.events())
                finally:
                    self._ctx.connects.in_flight -= 1
                SOCKET_CONNECTS.labels("opened").inc()
                SOCKETS.inc()
                try:
                    opened = True
                    self._ctx.host_met(self._caller, None)
                    self._feed.opened()
                    async for event in socket:
                        self._feed.take(event)
                        if self._task is not me:
                            return
                finally:
                    SOCKETS.dec()
                    SOCKET_DISCONNECTS.labels(disconnect_label(socket.close_reason)).inc()
                if self._task is me:
                    self._task = None
                    self._feed.closed(socket.close_reason)
            return
        except (FmsgError, LedgerError) as error:
            diagnosis = diagnose(error)
        except Exception as error:
            log.exception(
                "listening to the host failed", extra={"action": "listen_failed", "caller": self._caller, **SELDOM}
            )
            diagnosis = diagnose(error)
        if not opened:
            SOCKET_CONNECTS.labels("failed" if diagnosis.remedy == "retry" else diagnosis.remedy).inc()
            self._ctx.host_met(self._caller, diagnosis)
        if self._task is not me:
            return
        self._task = None
        if opened:
            self._feed.closed(diagnosis.reason)
        else:
            self._feed.connect_failed(diagnosis)


def disconnect_label(reason: str) -> str:
    """The few kinds of ends that a metric tells apart, from `fmsg.events.EventSocket.close_reason`."""
    if reason in {"", "closed by us"}:
        return "ours"
    if reason.startswith("closed by the host"):
        return "host"
    return "silent" if reason.startswith("no sign of life") else "cut"
