"""Which thread a message belongs to: the root of its lineage, found with as few requests as will do.

Most roots need no request: a message without ``pid`` is its own root, and a reply's parent is often in the ledger. What
remains is usually a reply to a message the caller sent, which no received list and no ledger holds. One look at
that message gives its parent, which the ledger knows. Only then is the host asked for the whole lineage: that answer
carries every text of the thread. Hosts without that route are walked along ``pid``.
"""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Protocol

import msgspec

from fmsg.errors import (
    CredentialMissing,
    FmsgError,
    Forbidden,
    HostRefused,
    HostUnreachable,
    NotFound,
    Throttled,
    Transient,
    Unauthorized,
)
from fmsg.message import Message, Page, Thread
from ledger.port import Ledger
from ledger.values import Arrival, CallerKey, Seen

CONCURRENCY = 4
"""Requests to the host at the same time for one caller: enough to hide the latency of a burst, too few to be one."""
SENT_PAGE_WORTH = 3
"""From this many parents on, one page of the sent list (which names the parents of all it lists) is cheaper."""
SENT_PAGE = 100
STEPS_BEFORE_THREAD = 2
"""Single messages fetched before the whole lineage is asked for: the caller's own message, and one more."""
MAX_STEPS = 1000
"""Where a walk along ``pid`` ends at the latest. A longer line is cut: the message reached stands for the root."""
LOOK_UP = 200
"""Ids looked up in the ledger at once: one script blocks every other caller of that Redis node."""


Roots = dict[int, int]
"""The root of each message's thread, by the message's id."""


class ThreadApi(Protocol):
    """What finding roots needs of `fmsg.webapi.WebApi`."""

    async def message(self, message_id: int) -> Message:
        """One message."""
        ...

    async def thread(self, message_id: int) -> Thread:
        """The lineage of a message; `NotFound` on older hosts."""
        ...

    async def list_sent(self, *, limit: int = ..., offset: int = ...) -> Page:
        """A page of the caller's own messages, id descending."""
        ...


class Ancestry:
    """What is known of who replies to whom, without asking anybody. ``known``: roots by message id, only read."""

    def __init__(self, entries: Iterable[Seen | Arrival] = (), known: Roots | None = None) -> None:
        self._parents: dict[int, int | None] = {}
        self._roots: MutableMapping[int, int] = ChainMap({}, known) if known else {}
        for entry in entries:
            self.learn(entry.id, pid=entry.pid, root=entry.root)

    def learn(self, message_id: int, *, pid: int | None, root: int = 0) -> None:
        """A message replies to ``pid`` (None: to nothing) and belongs to ``root`` (0: not known)."""
        self._parents[message_id] = pid or None
        if root:
            self._roots[message_id] = root

    def settle(self, message_id: int, root: int) -> None:
        """A message belongs to ``root``, whatever it replies to."""
        self._roots[message_id] = root

    def climb(self, message_id: int) -> tuple[int, int]:
        """(root, 0), or (0, the nearest ancestor of which nothing is known)."""
        passed: dict[int, None] = {}
        current = message_id
        while current not in self._roots:
            if current not in self._parents:
                return 0, current
            passed[current] = None
            pid = self._parents[current]
            if pid is None or pid in passed:  # a cycle is nonsense, and must not loop for ever
                self._roots[current] = current
                break
            current = pid
        root = self._roots[current]
        for one in passed:
            self._roots[one] = root
        return root, 0

    def cut(self, message_id: int) -> None:
        """Let the highest ancestor known stand for the root: nothing above it can be reached."""
        frontier = self.climb(message_id)[1]
        while frontier and self._parents.get(message_id) not in (None, frontier):
            message_id = self._parents[message_id] or message_id
        if frontier and frontier != message_id:
            self._roots[message_id] = message_id

    def apply(self, seen: Seen) -> Seen:
        """The message with its root filled in where that is known now."""
        return seen if seen.root else msgspec.structs.replace(seen, root=self.climb(seen.id)[0])


async def sort_out(
    ledger: Ledger, caller: CallerKey, pending: Sequence[Seen | Arrival], known: Roots | None = None
) -> Ancestry:
    """What the messages themselves, ``known`` and the ledger say of their roots; no request to the host."""
    lineage = Ancestry(pending, known)
    await _ask_ledger(ledger, caller, lineage, pending)
    return lineage


async def learn_from_sent(api: ThreadApi, lineage: Ancestry) -> FmsgError | None:
    """Learn from the newest page of the sent list what the caller's own messages reply to; the error if any."""
    try:
        page = await api.list_sent(limit=SENT_PAGE)
    except FmsgError as error:
        return error
    for message in page.messages:
        if not message.is_draft:
            lineage.learn(message.id, pid=message.pid)
    return None


async def resolve_roots(
    api: ThreadApi,
    ledger: Ledger,
    caller: CallerKey,
    pending: Sequence[Seen | Arrival],
    *,
    last_try: bool = False,
    known: Roots | None = None,
) -> Roots:
    """The roots of the messages by id; 0 for those that cannot be found yet (not readable yet, host in trouble).

    An ancestor that the host keeps from the caller ends the line where the host names no root: the highest reachable
    message then stands for it. With ``last_try`` an ancestor that the host does not know (any more) ends it too.

    Raises only what the ledger raises.
    """
    lineage = await sort_out(ledger, caller, pending, known)
    search = _RootSearch(api, ledger, caller, lineage, last_try=last_try)
    await search.run(pending)
    return {entry.id: entry.root or lineage.climb(entry.id)[0] for entry in pending}


class _RootSearch:
    """The requests to the host for one call of `resolve_roots`."""

    def __init__(self, api: ThreadApi, ledger: Ledger, caller: CallerKey, lineage: Ancestry, *, last_try: bool) -> None:
        self._api = api
        self._ledger = ledger
        self._caller = caller
        self._lineage = lineage
        self._last_try = last_try
        self._gave_up = False
        self._gate = asyncio.Semaphore(CONCURRENCY)

    async def run(self, pending: Sequence[Seen | Arrival]) -> None:
        open_ = self._open(pending)
        if len(open_) >= SENT_PAGE_WORTH:
            await self._learn_from_sent(pending)
            open_ = self._open(pending)
        try:
            async with asyncio.TaskGroup() as group:
                for message_id in open_:
                    group.create_task(self._find(message_id))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    def _open(self, pending: Sequence[Seen | Arrival]) -> list[int]:
        """One message for each unknown ancestor: the others follow from it."""
        found: dict[int, int] = {}
        for entry in pending:
            root, frontier = self._lineage.climb(entry.id)
            if not root:
                found.setdefault(frontier, entry.id)
        return list(found.values())

    async def _learn_from_sent(self, pending: Sequence[Seen | Arrival]) -> None:
        error = await learn_from_sent(self._api, self._lineage)
        if error is None:
            await _ask_ledger(self._ledger, self._caller, self._lineage, pending)
        else:
            self._note(error)

    async def _find(self, message_id: int) -> None:
        """Find the root of one message, or leave it open."""
        async with self._gate:
            for step in range(MAX_STEPS):
                root, frontier = self._lineage.climb(message_id)
                if root or self._gave_up:
                    return
                try:
                    if step == STEPS_BEFORE_THREAD and await self._learn_from_thread(message_id):
                        return
                    ancestor = await self._api.message(frontier)
                except (Forbidden, NotFound) as error:
                    await self._dead_end(message_id, frontier, error)
                    return
                except FmsgError as error:
                    self._note(error)
                    return
                self._lineage.learn(frontier, pid=ancestor.pid)
                root, frontier = self._lineage.climb(message_id)
                if not root:
                    await _look_up(self._ledger, self._caller, self._lineage, [frontier])
            self._lineage.cut(message_id)

    async def _learn_from_thread(self, message_id: int) -> bool:
        """Ask for the whole lineage; whether the host gave it. Raises nothing of the host's refusals but trouble."""
        try:
            thread = await self._api.thread(message_id)
        except (Transient, Unauthorized):
            raise
        except HostRefused:
            return False  # no such route on older hosts; too deep or too large elsewhere: walk
        for member in thread.messages or ():
            self._lineage.settle(member.id, thread.root_id)
        self._lineage.settle(message_id, thread.root_id)
        return True

    async def _dead_end(self, message_id: int, frontier: int, error: HostRefused) -> None:
        """An ancestor cannot be read. The host may still name the root; else the line ends below that ancestor."""
        try:
            if await self._learn_from_thread(message_id):
                return
        except FmsgError as trouble:
            self._note(trouble)
            return
        if isinstance(error, Forbidden) or self._last_try:
            self._lineage.cut(message_id)

    def _note(self, error: FmsgError) -> None:
        """End the search at trouble that the next request would meet as well. The rest is asked another time."""
        if isinstance(error, CredentialMissing | Unauthorized | Throttled | HostUnreachable):
            self._gave_up = True


async def _ask_ledger(ledger: Ledger, caller: CallerKey, lineage: Ancestry, pending: Sequence[Seen | Arrival]) -> None:
    """Look up the unknown ancestors in the ledger, and theirs, until the ledger knows no more."""
    asked: set[int] = set()
    while True:
        frontiers = {lineage.climb(entry.id)[1] for entry in pending} - asked - {0}
        if not frontiers or not await _look_up(ledger, caller, lineage, sorted(frontiers)):
            return
        asked |= frontiers


async def _look_up(ledger: Ledger, caller: CallerKey, lineage: Ancestry, message_ids: Sequence[int]) -> bool:
    """Learn what the ledger holds of these messages; whether it held any."""
    known = False
    for start in range(0, len(message_ids), LOOK_UP):
        found = await ledger.find(caller, message_ids[start : start + LOOK_UP])
        for entry in found.entries.values():
            lineage.learn(entry.id, pid=entry.pid, root=entry.root)
        known = known or bool(found.entries)
    return known
