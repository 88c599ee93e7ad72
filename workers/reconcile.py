"""The sweep: every active caller's list against their ledger, deeper than daemons look, and roots that came late.

It finds what nobody pushed: drafts sent days after newer messages came, and messages lost while no daemon was there. A
ledger that is gone begins anew. Besides, each sweep looks at one more page further down, until it was through the whole
list: somebody may be added to a message from long ago, and be told of it by an event that got lost.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fmsg.errors import CredentialMissing, FmsgError, Forbidden, Transient, Unauthorized
from ledger.catch_up import FULL_PAGE, OVERLAP, CaughtUp, ListApi, catch_up, look_deeper
from ledger.port import Activations, Documents, Fleet, Ledger, NoLedger, StaleEpoch
from ledger.thread_roots import ThreadApi, resolve_roots
from ledger.values import Arrival, CallerKey, LedgerState
from telemetry.logs import SELDOM
from telemetry.metrics import JOBS, LOST_EVENT_DELAY, LOST_EVENTS, RECONCILES
from workers.callers import Callers
from workers.queue import do_each
from workers.settings import WorkerSettings

log = logging.getLogger(__name__)

DEEPER, PLACE = "sweep", "deeper"
"""Kind and name of the document that says how far down a caller's list the sweeps are."""

DEEPER_TTL_S = 7 * 86_400.0
"""After so long without a sweep they begin below the newest pages again."""

LATE_ROOTS = 200
"""Newest entries of a ledger that are looked through for roots still unknown: older ones nobody waits for any more."""

LAST_TRY_AFTER_S = 600.0
"""An ancestor that the host still does not know this long after the reply arrived is gone, and the line ends there."""

LOST_AFTER_S = 10.0
"""A message younger than that may still be on its way through the socket; it is not called lost."""


class Reconciler:
    """Compares callers, some at a time, and stops asking a host that is in trouble."""

    def __init__(
        self,
        ledger: Ledger,
        activations: Activations,
        fleet: Fleet,
        documents: Documents,
        callers: Callers,
        *,
        settings: WorkerSettings,
    ) -> None:
        self._ledger = ledger
        self._activations = activations
        self._fleet = fleet
        self._documents = documents
        self._callers = callers
        self._settings = settings

    async def run(self, callers: Sequence[str]) -> str:
        """Compare a batch. Raises `TryLater` where the host or the store is in trouble: then it is done again whole."""

        async def one(caller: str) -> None:
            outcome = "failed"
            try:
                outcome = await self._caller(CallerKey(caller))
            finally:
                RECONCILES.labels(outcome).inc()

        await do_each(callers, one, at_once=self._settings.concurrency)
        return "done"

    async def _caller(self, caller: CallerKey) -> str:
        """One caller; a word for the outcome."""
        standing = await self._callers.find(caller)
        if standing is None:
            return "no_token"
        try:
            caught = await self._compare(standing.api, caller, standing.address)
            await self._late_roots(standing.api, caller, caught.state)
            if not caught.began and caught.pages >= self._settings.sweep_pages:
                await self._look_deeper(standing.api, caller, standing.address)
        except (Unauthorized, CredentialMissing, Forbidden):
            return "refused"
        except FmsgError as error:
            if isinstance(error, Transient):
                raise
            log.warning(
                "caller not compared: %s", error, extra={"action": "reconcile_refused", "caller": caller, **SELDOM}
            )
            return "refused"
        return "began" if caught.began else "found" if caught.new else "clean"

    async def _compare(self, api: ListApi, caller: CallerKey, address: str) -> CaughtUp:
        caught = await catch_up(
            api,
            self._ledger,
            caller,
            address,
            source="reconcile",
            min_pages=self._settings.sweep_pages,
        )
        if caught.new:
            await self._count_losses(caller, caught)
        return caught

    async def _look_deeper(self, api: ListApi, caller: CallerKey, address: str) -> None:
        kept = await self._documents.load(caller, DEEPER, PLACE)
        top = self._settings.sweep_pages * FULL_PAGE - OVERLAP
        offset = max(int(kept.data or b"0"), top)
        try:
            deeper = await look_deeper(api, self._ledger, caller, address, source="reconcile", offset=offset)
        except (NoLedger, StaleEpoch):
            return
        if deeper.found:
            RECONCILES.labels("found_deep").inc()
        data = str(deeper.next_offset or top).encode()
        await self._documents.store(caller, DEEPER, PLACE, data, expected=kept.version, ttl_s=DEEPER_TTL_S)

    async def _count_losses(self, caller: CallerKey, caught: CaughtUp) -> None:
        """Count what came while the socket looked healthy and was not pushed. Hosts do not push reactions as such."""
        feed = await self._activations.feed(caller)
        if feed is None or not feed.live or feed.daemon not in {member.id for member in await self._fleet.members()}:
            return
        for seen in caught.new:
            late_s = caught.late_s(seen)
            if not seen.reaction and late_s > LOST_AFTER_S and seen.sent_at_s > feed.since_s:
                LOST_EVENTS.inc()
                LOST_EVENT_DELAY.observe(late_s)

    async def _late_roots(self, api: ThreadApi, caller: CallerKey, state: LedgerState) -> None:
        """Find the roots that were unknown when the messages arrived."""
        try:
            newest = (await self._ledger.read_back(caller, LATE_ROOTS)).entries
            open_ = [entry for entry in newest if not entry.root]
            last_try = state.now_s - LAST_TRY_AFTER_S
            found = await self._resolve(api, caller, [one for one in open_ if one.arrived_at_s > last_try], False)
            found |= await self._resolve(api, caller, [one for one in open_ if one.arrived_at_s <= last_try], True)
            if found:
                await self._ledger.set_roots(caller, found)
                JOBS.labels("late_roots", "found").inc(len(found))
            if len(found) < len(open_):
                JOBS.labels("late_roots", "still_open").inc(len(open_) - len(found))
        except NoLedger:
            return

    async def _resolve(
        self, api: ThreadApi, caller: CallerKey, entries: Sequence[Arrival], last_try: bool
    ) -> dict[int, int]:
        if not entries:
            return {}
        roots = await resolve_roots(api, self._ledger, caller, entries, last_try=last_try)
        return {message_id: root for message_id, root in roots.items() if root}
