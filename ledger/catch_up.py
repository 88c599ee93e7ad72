"""The host's list against the ledger: what is listed but not recorded has arrived (FMSG-003, "Order").

An id is no cursor: a draft made early and sent late, or a message somebody is added to, turns up below ids that were
seen long ago. So every listed message is looked up in the ledger, and what counts as new is decided against the
ledger's baseline. Appending is idempotent: several daemons, workers and fronts may catch up the same caller at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from fmsg.message import Message, Page, available_at_s
from ledger.arrival import Baseline, CallerKey, LedgerState, Seen, Source
from ledger.port import Ledger, NoLedger
from ledger.roots import Lineage, ThreadApi, learn_from_sent, resolve_roots, sort_out

FIRST_PAGE = 30
"""Messages on the first page where one page is asked for. Every active caller is compared every minute, and a list
item weighs a kilobyte or two: a small page keeps 10,000 callers affordable. A longer burst is found by walking on."""
FULL_PAGE = 100
"""The longest page a host gives (FMSG-003: more is clamped silently)."""
OVERLAP = 10
"""How many messages a page shares with the one before it, so that a deletion in between skips nothing."""
CHUNK = 200
"""Arrivals per append. One append is one script, and a script blocks every other caller of that Redis node."""
SEED_LIMIT = 64
"""Seeds where the caller of `catch_up` names no other number."""
SPARE_FOR_DRAFTS = 16
"""How many more than the seeds are listed when a ledger begins, since drafts addressed to the caller are listed too."""


class ListApi(ThreadApi, Protocol):
    """What catching up needs of `fmsg.webapi.WebApi`."""

    async def list_received(self, *, limit: int = ..., offset: int = ...) -> Page:
        """A page of the received messages, id descending."""
        ...


class CaughtUp(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one comparison.

    ``new`` are (id, offset) of the arrivals this call recorded, in order; ``found_late`` the same messages, and
    ``rootless`` the ids of those whose thread root could not be found yet. ``pages`` is how many list pages were
    fetched. ``complete`` is False when ``max_pages`` ended the walk. ``began`` says that there was no ledger: its
    seeds are not arrivals.
    """

    new: tuple[tuple[int, int], ...]
    pages: int
    complete: bool
    found_late: tuple[Seen, ...]
    state: LedgerState
    rootless: tuple[int, ...] = ()
    began: bool = False
    host_time_s: float | None = None

    def late_s(self, seen: Seen) -> float:
        """How late a message of ``found_late`` was found, in seconds: by the host's clock, else by the ledger's."""
        now_s = self.state.now_s if self.host_time_s is None else self.host_time_s
        return max(0.0, now_s - seen.sent_at_s)


def seen_from(message: Message, *, address: str, root: int) -> Seen:
    """A listed or pushed message as the ledger keeps it. Not for drafts: `ValueError`."""
    sent_at_s = available_at_s(message, address)
    if sent_at_s is None:
        raise ValueError(f"message {message.id} is a draft, and a draft is not an arrival: skip it")
    return Seen(
        id=message.id,
        pid=message.pid or None,
        root=root,
        from_=message.from_.lower(),
        no_reply=message.no_reply,
        reaction=message.is_reaction,
        terminal=message.terminal,
        sent_at_s=sent_at_s,
    )


def is_news(seen: Seen, baseline: Baseline) -> bool:
    """Whether a message that the ledger does not hold has arrived since the baseline, rather than been there before."""
    return seen.id > baseline.newest_id or seen.sent_at_s > baseline.time_s


def baseline_of(page: Page, *, address: str) -> Baseline:
    """What was there when the page was listed.

    ``Date`` is cut to the second. A message on the page that became available within that second shows the list to be
    younger still; without this, its neighbours below the page would look like news. Without a ``Date`` the newest time
    on the page stands in for it.
    """
    messages = [seen_from(message, address=address, root=0) for message in page.messages if not message.is_draft]
    # Drafts alone say that whatever else there is lies below them.
    below_drafts = min((message.id for message in page.messages), default=1) - 1
    newest_id = max((seen.id for seen in messages), default=below_drafts)
    times = [seen.sent_at_s for seen in messages]
    if page.host_time_s is None:
        return Baseline(newest_id=newest_id, time_s=max(times, default=0.0))
    within = [time_s for time_s in times if page.host_time_s <= time_s < page.host_time_s + 1.0]
    return Baseline(newest_id=newest_id, time_s=max(within, default=page.host_time_s))


async def ensure_begun(
    api: ListApi, ledger: Ledger, caller: CallerKey, address: str, *, seed_limit: int
) -> LedgerState:
    """The caller's ledger as it stands; where there is none, it begins with the newest listed messages.

    Raises `fmsg.errors.FmsgError` and `LedgerUnavailable`; then nothing has begun.
    """
    state = await ledger.state(caller)
    if state is None:
        state, _ = await _begin(api, ledger, caller, address, seed_limit=seed_limit)
    return state


async def catch_up(
    api: ListApi,
    ledger: Ledger,
    caller: CallerKey,
    address: str,
    *,
    source: Source,
    min_pages: int = 1,
    max_pages: int = 200,
    seed_limit: int = SEED_LIMIT,
) -> CaughtUp:
    """Record what the host lists and the ledger lacks, in order of availability; begin the ledger where there is none.

    Looks at ``min_pages`` pages (full ones if more than one), and on as long as a page holds something new, up to
    ``max_pages``. After a connection was down, look deeper: a late-sent draft may lie anywhere. Roots that take a
    request to the host are looked up after the append, so that nobody waits for them to hear of a message.

    Raises `fmsg.errors.FmsgError` and `LedgerUnavailable`; what was appended by then stays, and nothing is appended
    before the walk is over: half a walk would leave a gap that looks like known ground.
    """
    state = await ledger.state(caller)
    if state is None:
        return await _fresh(api, ledger, caller, address, seed_limit=seed_limit)
    walk = _Walk(api, ledger, caller, address, state)
    try:
        await walk.run(min_pages=min_pages, max_pages=max_pages)
        found = await _with_local_roots(ledger, caller, walk.found.values())
        new, state = await _append(ledger, caller, found, source, walk.state)
    except NoLedger:
        return await _fresh(api, ledger, caller, address, seed_limit=seed_limit)
    appended = dict(new)
    late = tuple(seen for seen in found if seen.id in appended)
    late = await _with_roots(api, ledger, caller, late)
    return CaughtUp(
        new=new,
        pages=walk.pages,
        complete=walk.complete,
        found_late=late,
        state=state,
        rootless=tuple(seen.id for seen in late if not seen.root),
        host_time_s=walk.host_time_s,
    )


class _Walk:
    """One walk down the host's list, collecting what is news."""

    def __init__(self, api: ListApi, ledger: Ledger, caller: CallerKey, address: str, state: LedgerState) -> None:
        self.found: dict[int, Seen] = {}
        self.pages = 0
        self.complete = False
        self.host_time_s: float | None = None
        self.state = state
        self._api = api
        self._ledger = ledger
        self._caller = caller
        self._address = address

    async def run(self, *, min_pages: int, max_pages: int) -> None:
        limit = FIRST_PAGE if min_pages <= 1 else FULL_PAGE
        offset = 0
        lowest: int | None = None
        while self.pages < max_pages:
            page = await self._api.list_received(limit=limit, offset=offset)
            self.pages += 1
            self.host_time_s = page.host_time_s or self.host_time_s
            if lowest is not None and page.messages and page.messages[0].id < lowest:
                # Messages above were deleted and the list moved up by more than the overlap: look again from higher up.
                offset = max(0, offset - FULL_PAGE // 2)
                lowest = None if offset == 0 else lowest
                continue
            news = await self._news(page.messages)
            if len(page.messages) < limit or (self.pages >= min_pages and not news):
                self.complete = True
                return
            lowest = page.messages[-1].id
            offset += limit - OVERLAP
            limit = FULL_PAGE

    async def _news(self, messages: Sequence[Message]) -> bool:
        """Collect the news of one page; whether there was any that no page before had."""
        listed = {
            message.id: seen_from(message, address=self._address, root=0)
            for message in messages
            if not message.is_draft and message.id not in self.found
        }
        known = await self._ledger.locate(self._caller, list(listed)) if listed else {}
        unknown = [seen for id_, seen in listed.items() if id_ not in known]
        if not unknown:
            return False
        # The baseline is read after the places: what is trimmed in between is then below it and no news.
        state = await self._ledger.state(self._caller)
        if state is None:
            raise NoLedger(f"the ledger of {self._caller} is gone; begin it anew")
        self.state = state
        news = {seen.id: seen for seen in unknown if is_news(seen, state.baseline)}
        self.found |= news
        return bool(news)


async def _fresh(api: ListApi, ledger: Ledger, caller: CallerKey, address: str, *, seed_limit: int) -> CaughtUp:
    state, host_time_s = await _begin(api, ledger, caller, address, seed_limit=seed_limit)
    return CaughtUp(new=(), pages=1, complete=True, found_late=(), state=state, began=True, host_time_s=host_time_s)


async def _begin(
    api: ListApi, ledger: Ledger, caller: CallerKey, address: str, *, seed_limit: int
) -> tuple[LedgerState, float | None]:
    page = await api.list_received(limit=min(FULL_PAGE, seed_limit + SPARE_FOR_DRAFTS))
    listed = [seen_from(message, address=address, root=0) for message in page.messages if not message.is_draft]
    lineage = Lineage(listed)
    if not all(lineage.apply(seen).root for seen in listed):
        await learn_from_sent(api, lineage)
    rooted = [lineage.apply(seen) for seen in listed]
    newest = sorted(rooted, key=lambda seen: seen.id)[-seed_limit:] if seed_limit else []
    return await ledger.begin(caller, in_order(newest), baseline_of(page, address=address)), page.host_time_s


def in_order(seen: Iterable[Seen]) -> list[Seen]:
    """In the order in which they became available; by id where that is equal."""
    return sorted(seen, key=lambda one: (one.sent_at_s, one.id))


async def _append(
    ledger: Ledger, caller: CallerKey, found: Sequence[Seen], source: Source, state: LedgerState
) -> tuple[tuple[tuple[int, int], ...], LedgerState]:
    new: list[tuple[int, int]] = []
    for start in range(0, len(found), CHUNK):
        appended = await ledger.append(caller, found[start : start + CHUNK], source)
        new.extend(appended.new)
        state = appended.state
    return tuple(new), state


async def _with_local_roots(ledger: Ledger, caller: CallerKey, found: Iterable[Seen]) -> list[Seen]:
    """In order, with the roots that take no request to the host."""
    ordered = in_order(found)
    lineage = await sort_out(ledger, caller, ordered)
    return [lineage.apply(seen) for seen in ordered]


async def _with_roots(api: ThreadApi, ledger: Ledger, caller: CallerKey, late: tuple[Seen, ...]) -> tuple[Seen, ...]:
    pending = [seen for seen in late if not seen.root]
    if not pending:
        return late
    try:
        roots = {id_: root for id_, root in (await resolve_roots(api, ledger, caller, pending)).items() if root}
        if roots:
            await ledger.set_roots(caller, roots)
    except NoLedger:
        return late
    return with_roots(late, roots)


def with_roots(seen: Iterable[Seen], roots: Mapping[int, int]) -> tuple[Seen, ...]:
    """The same with the roots filled in where they are given."""
    return tuple(msgspec.structs.replace(one, root=roots.get(one.id) or one.root) for one in seen)
