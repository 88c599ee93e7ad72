"""Pages of a list from which some messages are left out: full pages, nothing skipped, nothing twice.

The host knows nothing of what we leave out, so an offset is always one of the host's list: ``next_offset`` is where the
message after the last one looked at stands (FMSG-007, list_messages; Behavioural Rules, Reactions).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from fmsg.message import Message, Page

HOST_PAGE = 100
"""The most a host gives in one page; more is clamped silently (FMSG-003)."""

HEADROOM = 5
"""Asked for above what is wanted: a few reactions among the newest then cost no second request."""

MOST_PAGES = 10
"""Of the host's per call: a thousand messages. A caller whose unread ones lie deeper goes on with ``next_offset``."""

Fetch = Callable[[int, int], Awaitable[Page]]
"""The host's page for a limit and an offset."""


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """Messages to show, and the host's offset at which the next page begins (None: the list ends here)."""

    messages: tuple[Message, ...]
    next_offset: int | None


async def collect(fetch: Fetch, shown: Callable[[Message], bool], *, limit: int, offset: int) -> Collected:
    """At most ``limit`` messages that are to be shown, from the host's ``offset`` on.

    Fewer only where the list ends or after `MOST_PAGES` pages. The next page begins right after the last message shown,
    so that what is left out now (a draft) and shown later is not passed over. A message that arrives between two
    requests moves the list by one: what is met again is shown once.
    """
    found: dict[int, Message] = {}
    position = ended_at = offset
    asked = min(HOST_PAGE, limit + HEADROOM)
    for _ in range(MOST_PAGES):
        page = (await fetch(asked, position)).messages
        for message in page:
            position += 1
            if message.id in found or not shown(message):
                continue
            if len(found) == limit:
                return Collected(messages=tuple(found.values()), next_offset=ended_at)
            found[message.id] = message
            ended_at = position
        if len(page) < asked:
            return Collected(messages=tuple(found.values()), next_offset=None)
        if len(found) == limit:
            return Collected(messages=tuple(found.values()), next_offset=ended_at)
        asked = HOST_PAGE
    return Collected(messages=tuple(found.values()), next_offset=position)
