"""The host's list against the ledger: what is listed but not recorded has arrived (FMSG-003, "Order").

An id is no cursor: a draft made early and sent late, or a message somebody is added to, turns up below ids that were
seen long ago. So every listed message is looked up in the ledger, and what counts as new is decided against the
ledger's baseline. Appending is idempotent: several daemons, workers and fronts may catch up the same caller at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from fmsg.message import Message, Page, available_at_s
from ledger.port import Ledger, LedgerUnavailable, NoLedger, StaleEpoch
from ledger.thread_roots import Ancestry, ThreadApi, learn_from_sent, resolve_roots, sort_out
from ledger.values import Arrival, Baseline, CallerKey, Image, LedgerState, Seen, Source

FIRST_PAGE = 30
"""Messages on the first page where one page is asked for. Every active caller is compared every minute, and a list
item weighs a kilobyte or two: a small page keeps 10,000 callers affordable. A longer burst is found by walking on."""
FULL_PAGE = 100
"""The longest page a host gives (FMSG-003: more is clamped silently)."""
OVERLAP = 10
"""How many messages a page shares with the one before it, so that a deletion in between skips nothing."""
BELOW_VERIFIED = 10
"""Messages at or below the verified watermark that a walk has to see: an id is given before its message becomes
visible, and with many senders at once the next one may be visible sooner."""
CHUNK = 200
"""Arrivals per append. One append is one script, and a script blocks every other caller of that Redis node."""
IMAGE_READ = 1000
"""Entries read for an image: the newest are kept, and all of them tell what is old news."""
TRIES = 3
"""Comparisons begun before giving up, where the ledger is lost or loses its tail in the middle of each."""
SNAPSHOT_ENTRIES = 64
"""Messages that a ledger begins with: enough to resume where an agent stopped reading."""
SNAPSHOT_PAGE = SNAPSHOT_ENTRIES + 16
"""Messages listed when a ledger begins: a few more, since drafts addressed to the caller are listed too."""


class ListApi(ThreadApi, Protocol):
    """What catching up needs of `fmsg.webapi.WebApi`."""

    async def list_received(self, *, limit: int = ..., offset: int = ...) -> Page:
        """A page of the received messages, id descending."""
        ...


class CaughtUp(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one comparison.

    ``new`` are the arrivals this call recorded, in order, with the thread roots found by then. ``pages`` is how many
    list pages were fetched. ``complete`` is False when ``max_pages`` ended the walk. ``began_with`` is the page whose
    snapshot a ledger began with, where there was none: what it holds is no arrival.
    """

    new: tuple[Arrival, ...]
    pages: int
    complete: bool
    state: LedgerState
    began_with: Page | None = None
    host_time_s: float | None = None

    @property
    def began(self) -> bool:
        """Whether there was no ledger."""
        return self.began_with is not None

    @property
    def rootless(self) -> tuple[Arrival, ...]:
        """Those of ``new`` whose thread root could not be found yet."""
        return tuple(one for one in self.new if not one.root)

    def late_s(self, found: Arrival) -> float:
        """How late one of ``new`` was found, in seconds: by the host's clock, else by the ledger's."""
        now_s = self.state.now_s if self.host_time_s is None else self.host_time_s
        return max(0.0, now_s - found.sent_at_s)


class Deeper(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages `look_deeper` recorded, and the offset of the page below; None at the end of the list."""

    found: int
    next_offset: int | None


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


async def catch_up(
    api: ListApi,
    ledger: Ledger,
    caller: CallerKey,
    address: str,
    *,
    source: Source,
    min_pages: int = 1,
    max_pages: int = 200,
    image: Image | None = None,
) -> CaughtUp:
    """Record what the host lists and the ledger lacks, in order of availability; begin the ledger where there is none.

    Looks at ``min_pages`` pages (full ones if more than one), and on as long as a page holds something new or the
    verified watermark (`LedgerState.verified_id`) is not reached, up to ``max_pages``. A walk that ended by itself
    moves the watermark to where it began. After a connection was down, look deeper: a late-sent draft may lie anywhere.
    Roots that take a request to the host are looked up after the append, so that no reader waits for them.

    What the ledger lost since ``image`` was taken is written back before anything is appended.

    Raises `fmsg.errors.FmsgError` and `LedgerUnavailable`; what was appended by then stays, and the watermark where it
    was.
    """
    new: dict[int, Arrival] = {}
    began_with: Page | None = None
    for _ in range(TRIES):
        try:
            state = await ledger.state(caller)
            if image is not None:
                if state is None:
                    state = await ledger.restore(caller, image)
                if state.epoch == image.state.epoch:
                    # Comparing with the ledger as the image knows it tells whether its end is still there.
                    state = msgspec.structs.replace(state, last=image.state.last)
            if state is None:
                state, newest_id, began_with = await _begin(api, ledger, caller, address)
                if newest_id <= state.verified_id:
                    return CaughtUp(
                        new=(),
                        pages=1,
                        complete=True,
                        state=state,
                        began_with=began_with,
                        host_time_s=began_with.host_time_s,
                    )
                # Another process began it a moment before, from an older list.
            walk = _Walk(api, ledger, caller, address, state)
            await walk.run(min_pages=min_pages, max_pages=max_pages)
            in_turn = await _with_local_roots(ledger, caller, walk.found.values())
            state = await _append(ledger, caller, in_turn, source, walk, new)
        except (NoLedger, StaleEpoch):
            if image is not None:
                await ledger.restore(caller, image)
            continue
        return CaughtUp(
            new=await _with_roots(api, ledger, caller, tuple(new.values())),
            pages=walk.pages,
            complete=walk.complete,
            state=state,
            began_with=began_with,
            host_time_s=walk.host_time_s,
        )
    raise LedgerUnavailable(
        f"the ledger of caller {caller[:8]}… was lost {TRIES} times while it was compared. It is compared again later; "
        "check that Redis neither evicts keys (maxmemory-policy noeviction) nor fails over again and again."
    )


async def read_image(ledger: Ledger, caller: CallerKey) -> Image:
    """The image of the caller's ledger as it stands. Raises `NoLedger` and `LedgerUnavailable`."""
    tail = await ledger.read_back(caller, IMAGE_READ)
    return Image.of(tail, whole=len(tail.entries) < IMAGE_READ)


async def look_deeper(
    api: ListApi, ledger: Ledger, caller: CallerKey, address: str, *, source: Source, offset: int
) -> Deeper:
    """Record the news of one page further down the list: of messages from long ago that somebody was added to just now.

    Raises as `catch_up`, and `NoLedger`.
    """
    page = await api.list_received(limit=FULL_PAGE, offset=offset)
    messages = [message for message in page.messages if not message.is_draft]
    listed = [seen_from(message, address=address, root=0) for message in messages]
    compared = await ledger.compare(caller, listed)
    found = await _with_local_roots(ledger, caller, [seen for seen in listed if seen.id in compared.news])
    if found:
        await ledger.append(caller, found, source, since=compared.state.head)
    ended = len(page.messages) + page.skipped < FULL_PAGE
    return Deeper(found=len(found), next_offset=None if ended else offset + FULL_PAGE - OVERLAP)


class _Walk:
    """One walk down the host's list, collecting what is news.

    Each page is compared with the ledger that the page before was compared with (`Ledger.append`, ``since``): what one
    found recorded must still be there when the verified watermark passes it.
    """

    def __init__(self, api: ListApi, ledger: Ledger, caller: CallerKey, address: str, state: LedgerState) -> None:
        self.found: dict[int, Seen] = {}
        self.pages = 0
        self.complete = False
        self.newest_id = 0
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
            ids = [message.id for message in page.messages]
            if not self.pages:
                # Drafts count, too: they are not there yet, and found by their time once they are.
                self.newest_id = max(ids, default=0)
            self.pages += 1
            self.host_time_s = page.host_time_s or self.host_time_s
            if lowest is not None and not (ids and ids[0] >= lowest):
                # Messages above were deleted and the list moved up by more than the overlap: look again from higher up.
                offset = max(0, offset - FULL_PAGE // 2)
                lowest = None if offset == 0 else lowest
                continue
            news = await self._news(page.messages)
            verified = len(ids) >= BELOW_VERIFIED and ids[-BELOW_VERIFIED] <= self.state.verified_id
            if len(ids) + page.skipped < limit or (self.pages >= min_pages and verified and not news):
                self.complete = True
                return
            lowest = ids[-1] if ids else None
            offset += limit - OVERLAP
            limit = FULL_PAGE

    async def _news(self, messages: Sequence[Message]) -> bool:
        """Collect the news of one page; whether there was any that no page before had."""
        listed = {
            message.id: seen_from(message, address=self._address, root=0)
            for message in messages
            if not message.is_draft and message.id not in self.found
        }
        if not listed:
            return False
        compared = await self._ledger.compare(self._caller, tuple(listed.values()), since=self.state.head)
        self.state = compared.state
        self.found |= {id_: seen for id_, seen in listed.items() if id_ in compared.news}
        return bool(compared.news)


async def _begin(api: ListApi, ledger: Ledger, caller: CallerKey, address: str) -> tuple[LedgerState, int, Page]:
    """The ledger as it stands then, the newest id that was listed, and the page to begin it with."""
    page = await api.list_received(limit=SNAPSHOT_PAGE)
    listed = [seen_from(message, address=address, root=0) for message in page.messages if not message.is_draft]
    lineage = Ancestry(listed)
    if not all(lineage.apply(seen).root for seen in listed):
        await learn_from_sent(api, lineage)
    rooted = [lineage.apply(seen) for seen in listed]
    newest = sorted(rooted, key=lambda seen: seen.id)[-SNAPSHOT_ENTRIES:]
    baseline = baseline_of(page, address=address)
    return await ledger.begin(caller, in_order(newest), baseline), baseline.newest_id, page


def in_order(seen: Iterable[Seen]) -> list[Seen]:
    """In the order in which they became available; by id where that is equal."""
    return sorted(seen, key=lambda one: (one.sent_at_s, one.id))


async def _append(
    ledger: Ledger,
    caller: CallerKey,
    found: Sequence[Seen],
    source: Source,
    walk: _Walk,
    new: dict[int, Arrival],
) -> LedgerState:
    """Append what a walk found, and with the last of it move the verified watermark; adds to ``new``."""
    state = walk.state
    verified_id = walk.newest_id if walk.complete else 0
    chunks = [found[start : start + CHUNK] for start in range(0, len(found), CHUNK)]
    if not chunks and verified_id > state.verified_id:
        chunks.append(())
    for number, chunk in enumerate(chunks, 1):
        moved_id = verified_id if number == len(chunks) else 0
        appended = await ledger.append(caller, chunk, source, since=state.head, verified_id=moved_id)
        new |= {one.id: one for one in appended.new}
        state = appended.state
    return state


async def _with_local_roots(ledger: Ledger, caller: CallerKey, found: Iterable[Seen]) -> list[Seen]:
    """In order, with the roots that take no request to the host."""
    ordered = in_order(found)
    lineage = await sort_out(ledger, caller, ordered)
    return [lineage.apply(seen) for seen in ordered]


async def _with_roots(
    api: ThreadApi, ledger: Ledger, caller: CallerKey, new: tuple[Arrival, ...]
) -> tuple[Arrival, ...]:
    """The same with the roots that were unknown, as far as they can be found now."""
    pending = [one for one in new if not one.root]
    if not pending:
        return new
    try:
        roots = {id_: root for id_, root in (await resolve_roots(api, ledger, caller, pending)).items() if root}
        if roots:
            await ledger.set_roots(caller, roots)
    except NoLedger:
        return new
    return tuple(one if one.root else msgspec.structs.replace(one, root=roots.get(one.id, 0)) for one in new)
