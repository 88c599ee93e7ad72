"""Agents that wait in a loop, each in one of the ways agents do, and write down what they get."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tests.chaos.calls import CallError, Client, Dropped, Refused, ToolFailed
from tests.chaos.verdict import Interval, Reader, Receipt

PATIENCE_S = 40.0
"""A call is given up so long after its own time limit: above the longest a front is stopped for."""


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """How one agent calls. Probabilities per call; times in seconds."""

    timeouts_s: tuple[int, ...] = (5, 10, 20, 50)
    settles_s: tuple[int, ...] = (0, 0, 1, 3)
    hangs_up: float = 0.02
    """It cuts the connection itself in the middle of a call."""
    goes_away: float = 0.01
    """It does something else for a while before it calls again."""
    away_s: float = 20.0
    forgets: float = 0.0
    """It calls without ``after_id``, as if it had been restarted."""
    include_thread: float = 0.02


class Record:
    """What all consumers of a run wrote down."""

    def __init__(self) -> None:
        self.receipts: list[Receipt] = []
        self.calls: Counter[str] = Counter()
        """Calls by outcome: message, timeout, dropped, refused 503, failed …"""
        self.failures: Counter[str] = Counter()
        """What failed calls said, and how often."""
        self.failed: list[Interval] = []
        """Each call that failed other than by its connection: what it said, from when to when."""
        self.batches = itertools.count(1)
        self.trace: list[dict[str, Any]] = []
        """Every call: who, when, what it passed, what it got (with a star: marked as returned before)."""


class Consumer:
    """One agent. ``urls`` gives the fronts; each call goes to any of them."""

    def __init__(
        self,
        reader: Reader,
        key: str,
        client: Client,
        record: Record,
        *,
        urls: Callable[[], Sequence[str]],
        rng: random.Random,
        habits: Habits = Habits(),  # noqa: B008 - frozen
        subscription: str | None = None,
    ) -> None:
        self.reader = reader
        self.after_id = "0"
        self.calling_since_s = time.time()
        self._key = key
        self._client = client
        self._record = record
        self._urls = urls
        self._rng = rng
        self._habits = habits
        self._subscription = subscription
        self.forgetful = True
        """Whether it may forget: not once Redis may, for then nobody knows any more where it was."""
        self.hurry = False
        """Neither hang up nor go away any more: the run is being counted."""

    async def run(self) -> None:
        """Call for ever."""
        while True:
            try:
                await self._call()
            except Dropped as error:
                self._record.calls["dropped"] += 1
                self._record.failures[f"dropped: {str(error)[:60]}"] += 1
                await asyncio.sleep(self._rng.uniform(0.05, 0.5))
            except Refused as error:
                self._record.calls[f"refused {error.status}"] += 1
                await asyncio.sleep(min(error.retry_after_s or 1.0, 10.0) * self._rng.uniform(0.8, 1.2))
            except ToolFailed:
                self._record.calls["failed"] += 1
                await asyncio.sleep(self._rng.uniform(0.5, 1.5))
            if not self.hurry and self._rng.random() < self._habits.goes_away:
                await asyncio.sleep(self._rng.uniform(0.0, self._habits.away_s))
                self.calling_since_s = time.time()

    async def _call(self) -> None:
        arguments = self._arguments()
        began_s = time.time()
        patience_s = arguments["timeout_seconds"] + PATIENCE_S
        hangs_up = not self.hurry and self._rng.random() < self._habits.hangs_up
        if hangs_up:
            patience_s = self._rng.uniform(0.0, arguments["timeout_seconds"])
        url = self._rng.choice(self._urls())
        trace: dict[str, Any] = {"reader": self.reader.name, "began_s": began_s, "url": url, **arguments}
        self._record.trace.append(trace)
        try:
            fields = await self._client.call(url, self._key, "wait_for_message", arguments, patience_s=patience_s)
        except (Refused, ToolFailed) as error:
            trace |= {"at_s": time.time(), "error": str(error)}
            self._record.failures[f"{type(error).__name__}: {str(error)[:160]}"] += 1
            self._record.failed.append(Interval(kind=str(error), start_s=began_s, end_s=time.time()))
            raise
        except CallError as error:
            trace |= {"at_s": time.time(), "error": str(error)}
            if hangs_up:
                self._record.calls["hung up"] += 1
                return
            raise
        trace |= {
            "at_s": time.time(),
            "got": [f"{message['id']}{'*' * _is_marked(message)}" for message in fields["messages"]],
            "position": fields["after_id"],
            "transport": fields["transport"],
            "notes": fields.get("notes", []),
            "skipped": fields.get("skipped", []),
        }
        self._note(fields, began_s)

    def _arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "timeout_seconds": self._rng.choice(self._habits.timeouts_s),
            "settle_seconds": self._rng.choice(self._habits.settles_s),
        }
        if self.after_id == "0" or not self.forgetful or self._rng.random() >= self._habits.forgets:
            arguments["after_id"] = self.after_id
        if self._subscription is not None:
            arguments["subscription"] = self._subscription
        if self.reader.from_ is not None:
            arguments["from"] = self.reader.from_
        if self._rng.random() < self._habits.include_thread:
            arguments["include_thread"] = True
        return arguments

    def _note(self, fields: dict[str, Any], began_s: float) -> None:
        self._record.calls[fields["status"]] += 1
        self.after_id = fields["after_id"]
        batch = next(self._record.batches)
        for message in fields["messages"]:
            if message.get("unreadable"):
                self._record.calls["unreadable"] += 1
            self._record.receipts.append(
                Receipt(
                    reader=self.reader.name,
                    id=int(message["id"]),
                    batch=batch,
                    marked=_is_marked(message),
                    since_s=self.calling_since_s,
                    began_s=began_s,
                    at_s=time.time(),
                )
            )


def _is_marked(message: Mapping[str, Any]) -> bool:
    return bool(message.get("already_returned") or message.get("redelivered"))
