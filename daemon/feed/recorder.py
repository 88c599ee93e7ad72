"""How what was pushed gets into the ledger: appended in batches, its thread roots looked up afterwards."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from daemon.feed.context import FeedContext
from daemon.feed.diagnosis import Diagnosis, diagnose
from daemon.feed.intake import Intake, Pushed
from daemon.feed.late_roots import LateRoots
from fmsg.webapi import WebApi
from ledger.port import LedgerError, NoLedger, StaleEpoch
from ledger.values import CallerKey, Seen

log = logging.getLogger(__name__)

WRITE_WITHIN_S = 2.0
"""How long a closing feed waits for a write under way; what it cuts off is found in the list later."""

ROOTS_AGAIN_S = 30.0
"""When to look for roots again after the store or our own code failed meanwhile."""


class Owner(Protocol):
    """The feed, as its recorder sees it."""

    def fell_behind(self) -> None:
        """The ledger is gone or frames were dropped: only the list knows now what the ledger lacks."""
        ...

    def write_failed(self, diagnosis: Diagnosis) -> None:
        """The store does not take what was pushed. It waits and is written when asked again."""
        ...

    def check_within(self, delay_s: float) -> None:
        """Call `Recorder.find_roots` in so many seconds at the latest."""
        ...


class Recorder:
    """Writes one caller's pushed messages. At most one write and one search for roots run at a time."""

    __slots__ = ("_api", "_caller", "_ctx", "_intake", "_owner", "_rooting", "_roots", "_writing")

    def __init__(self, ctx: FeedContext, caller: CallerKey, api: WebApi, owner: Owner) -> None:
        self._ctx = ctx
        self._caller = caller
        self._api = api
        self._owner = owner
        self._intake = Intake(ctx.settings.pending_limit)
        self._roots = LateRoots()
        self._writing: asyncio.Task[None] | None = None
        self._rooting: asyncio.Task[None] | None = None

    def __contains__(self, message_id: object) -> bool:
        """Whether the message was pushed and is not written yet."""
        return message_id in self._intake

    def keep(self, pushed: Pushed) -> None:
        """Keep a pushed message until `write` is asked for. Without room for it the owner hears that it fell behind."""
        if not self._intake.add(pushed):
            self._owner.fell_behind()

    def write(self) -> None:
        """Write what is kept. Frames that come meanwhile go with the next batch."""
        if self._writing is None and len(self._intake):
            self._writing = self._ctx.spawn(self._write())

    def add_rootless(self, seen: list[Seen]) -> None:
        """Messages in the ledger whose root is to be found."""
        self._roots.add(seen)

    def find_roots(self) -> None:
        """Look for the roots that are missing."""
        if self._rooting is None and len(self._roots):
            self._rooting = self._ctx.spawn(self._find_roots())

    async def close(self) -> None:
        """End what is under way; a write gets `WRITE_WITHIN_S`."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=WRITE_WITHIN_S)
        tasks = [task for task in (self._writing, self._rooting) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _write(self) -> None:
        failure: Diagnosis | None = None
        behind = False
        try:
            while len(self._intake):
                rootless = await self._intake.write(self._ctx.ledger, self._caller, clock=self._ctx.clock)
                self._roots.add(rootless)
                self.find_roots()
        except (NoLedger, StaleEpoch):
            behind = True
        except LedgerError as error:
            failure = diagnose(error)
        except Exception as error:
            # What cannot be written because of a fault of ours must not come round for ever: the list still has it.
            log.exception("writing arrivals failed", extra={"action": "write_failed", "caller": self._caller})
            self._intake.clear()
            failure = diagnose(error)
        finally:
            self._writing = None
        if behind:
            self._owner.fell_behind()
        elif failure is not None:
            self._owner.write_failed(failure)

    async def _find_roots(self) -> None:
        delay_s: float | None = ROOTS_AGAIN_S
        try:
            async with self._ctx.rooting:
                delay_s = await self._roots.find(self._api, self._ctx.ledger, self._caller)
        except LedgerError:
            log.debug("roots wait for the store", extra={"action": "roots_put_off", "caller": self._caller})
        except Exception:
            log.exception("looking for roots failed", extra={"action": "roots_failed", "caller": self._caller})
        finally:
            self._rooting = None
        if delay_s is not None:
            self._owner.check_within(delay_s)
