"""Where a message stands in the host's list, found by search, and what lies around it (FMSG-003, lists).

The list is ordered by id, newest first, and asked for by offset. Messages that arrive meanwhile push everything to
higher offsets, late-sent drafts turn up in the middle, drafts go: so offsets are only guesses, and every page is judged
by the ids on it. Pages that are to be joined overlap, and where they do not they are read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from fmsg.errors import HostMisbehaved
from fmsg.message import Message, Page

PAGE = 100
"""The longest page a host gives."""
NEWER_SHARE = 70
"""Where on a page the wanted place is put: most of the page should be what comes after it."""
ENOUGH = 50
"""Newer messages that are worth a decision; with fewer another page is fetched."""
OVERLAP = 10
"""Messages two joined pages share. More arrive between two requests only in a burst; then the page is read again."""
MARGIN = 120
"""How far below a place late-sent drafts and added messages are looked for. They are found by comparing times, one by
one, so the look must end somewhere; feeds find them too, without this bound, as long as one runs."""
GALLOP = 8
"""How much farther than the last page the search may jump at once, so that a wild estimate costs little."""
MAX_CALLS = 24
"""Requests of one search. Ten reach the end of a list of 50,000 in the worst case; beyond this the list is no list."""


class ReceivedList(Protocol):
    """What is needed of `fmsg.webapi.WebApi`."""

    async def list_received(self, *, limit: int = ..., offset: int = ...) -> Page:
        """A page of the received messages, id descending."""
        ...


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the list holds around an id: ``newer`` ascending and without holes from it on, ``older`` (the id itself and
    below) descending.

    ``top``: ``newer`` reaches the newest message of the list. ``offset``: where ``older`` begins. ``calls``: requests
    made.
    """

    newer: tuple[Message, ...]
    older: tuple[Message, ...]
    top: bool
    offset: int
    calls: int


async def look_around(api: ReceivedList, message_id: int, *, hint: int | None = None, margin: int = 0) -> Surroundings:
    """What stands around ``message_id`` in the list, whether the list holds it or not.

    ``hint`` is the offset it had some time ago; ``margin`` how many older messages are wanted. Raises what the host
    raises.
    """
    search = _Search(api, message_id)
    page, offset = await search.find(hint)
    newer = [message for message in reversed(page) if message.id > message_id]
    older = [message for message in page if message.id <= message_id]
    boundary = offset + len(newer)
    goes_on = not search.at_end
    newer, start = await search.climb(newer, offset)
    if goes_on:
        older = await search.descend(older, boundary, margin)
    return Surroundings(newer=tuple(newer), older=tuple(older), top=start == 0, offset=boundary, calls=search.calls)


class _Search:
    """The requests of one look."""

    def __init__(self, api: ReceivedList, message_id: int) -> None:
        self.calls = 0
        self.at_end = False
        """Whether the last page was the end of the list. Messages that cannot be understood count, too."""
        self._api = api
        self._id = message_id
        self._low: tuple[int, int] | None = None
        """An offset that holds something newer, the largest known, and the id there."""
        self._high: tuple[int, int | None] | None = None
        """An offset that holds nothing newer, the smallest known, and the id there (None: the list ends before)."""
        self._spacing = 1.0
        """Ids per message, as on the last page."""

    async def find(self, hint: int | None) -> tuple[Sequence[Message], int]:
        """The page on which the list goes from newer to not newer (or ends), and its offset."""
        offset = max(0, (hint or 0) - ENOUGH)  # whatever arrived since then has pushed it down
        while True:
            page = await self._page(offset)
            newer = sum(message.id > self._id for message in page)
            if (newer or offset == 0) and (newer < len(page) or self.at_end):
                return page, offset
            if self.calls >= MAX_CALLS:
                raise HostMisbehaved(
                    f"message {self._id}: the host's list does not stand still long enough to find it."
                )
            self._learn(page, offset, newer)
            offset = self._guess()

    async def climb(self, newer: list[Message], start: int) -> tuple[list[Message], int]:
        """Add newer pages until there is enough; the messages ascending, and the offset where they begin."""
        while len(newer) < ENOUGH and start > 0 and self.calls < MAX_CALLS:
            wanted = max(0, start + OVERLAP - PAGE)
            page = await self._page(wanted)
            newest = newer[-1].id if newer else self._id
            fresh = [message for message in reversed(page) if message.id > newest]
            if len(fresh) == len(page) and page:
                # Everything moved down by more than the overlap: what is on this page does not join on.
                start += PAGE // 2
                continue
            newer = newer + fresh
            start = wanted
        return newer, start

    async def descend(self, older: list[Message], boundary: int, margin: int) -> list[Message]:
        """Add older pages until there are enough; arrivals meanwhile only make the pages share more."""
        while len(older) < margin and self.calls < MAX_CALLS:
            page = await self._page(boundary + max(len(older) - OVERLAP, 0))
            lowest = older[-1].id if older else self._id + 1
            older = older + [message for message in page if message.id < lowest]
            if self.at_end:
                break
        return older

    async def _page(self, offset: int) -> Sequence[Message]:
        self.calls += 1
        page = await self._api.list_received(limit=PAGE, offset=offset)
        self.at_end = len(page.messages) + page.skipped < PAGE
        return page.messages

    def _learn(self, page: Sequence[Message], offset: int, newer: int) -> None:
        if newer:
            self._low = (offset + len(page) - 1, page[-1].id)
            self._spacing = max((page[0].id - page[-1].id) / max(len(page) - 1, 1), 1.0)
            if self._high is not None and self._high[0] <= self._low[0]:
                self._high = None  # the list moved down since
        else:
            self._high = (offset, page[0].id if page else None)
            if self._low is not None and self._low[0] >= offset:
                self._low = None  # messages went since

    def _guess(self) -> int:
        """Where to look next, by interpolation between what is known, every second time by halving."""
        if self._low is None:
            return max(0, (self._high or (0, None))[0] - (PAGE << self.calls))
        low, low_id = self._low
        if self._high is None:
            estimate = low + (low_id - self._id) / self._spacing
            return round(min(max(estimate - NEWER_SHARE, low + 1 - OVERLAP), (low + PAGE) * GALLOP))
        high, high_id = self._high
        share = 0.5
        if high_id is not None and self.calls % 2 and low_id > high_id:
            share = (low_id - self._id) / (low_id - high_id)
        estimate = low + (high - low) * share
        return round(min(max(estimate - NEWER_SHARE, low + 1 - OVERLAP), max(high - 1, 0)))
