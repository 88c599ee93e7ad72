"""How a host tells: sockets by identity, and the one listener that feeds them all (FMSG-003, WebSocket)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from sandbox.records import lowered

ANYBODY = "*"
"""Stands for every address where events are to be lost."""

_EVENTS_PER_PASS = 64
"""Events handled before other work gets a turn: about a millisecond."""

_SWAP_CHANCE = 0.25
"""Neighbours swapped among waiting events: 24 of 90 frames out of order were seen on the public host."""


class Event(msgspec.Struct, frozen=True):
    """``kind`` as on the wire, about a message, for these addresses (as written or in lower case)."""

    kind: str
    message_id: int
    to: tuple[str, ...]


class Ear(Protocol):
    """An open socket as the listener sees it."""

    def offer(self, frame: bytes) -> None:
        """Send the frame, or close the socket when its buffer is full."""


class Listener:
    """Turns events into frames for the sockets that are open.

    Events wait in a queue that is worked off in the next turn of the loop; a burst is therefore really a burst for the
    sockets it goes to. ``build`` renders the data for one viewer at the time of sending, None when it cannot.
    """

    def __init__(
        self,
        build: Callable[[Event, str], bytes | None],
        *,
        shuffle: Callable[[], bool],
        rng: random.Random,
    ) -> None:
        self.deaf = False
        """While True, events are silently lost and sockets stay open."""
        self.lose_next: Counter[str] = Counter()
        """So many coming events are silently lost, by address in lower case; ``*`` is any address."""
        self.lost = 0
        """Events lost so far."""
        self.frames = 0
        """Frames offered to sockets so far."""
        self._ears: dict[str, list[Ear]] = {}
        self._waiting: deque[Event] = deque()
        self._pass: asyncio.Handle | None = None
        self._build = build
        self._shuffle = shuffle
        self._rng = rng

    def add(self, address: str, ear: Ear) -> None:
        """Feed this socket from now on. Several per address are allowed."""
        self._ears.setdefault(lowered(address), []).append(ear)

    def remove(self, address: str, ear: Ear) -> None:
        """Stop feeding this socket. It may be gone already."""
        ears = self._ears.get(lowered(address))
        if ears is not None and ear in ears:
            ears.remove(ear)
            if not ears:
                del self._ears[lowered(address)]

    def ears(self, address: str | None = None) -> list[Ear]:
        """The open sockets of one address, or all of them."""
        if address is not None:
            return list(self._ears.get(lowered(address), ()))
        return [ear for ears in self._ears.values() for ear in ears]

    def counts(self) -> dict[str, int]:
        """Open sockets by address in lower case."""
        return {address: len(ears) for address, ears in self._ears.items()}

    def notify(self, kind: str, message_id: int, to: Iterable[str]) -> None:
        """Queue an event. A deaf listener drops it."""
        listening = tuple(
            address for address in to if lowered(address) in self._ears and not self._loses(lowered(address))
        )
        if not listening:
            return
        self._waiting.append(Event(kind, message_id, listening))
        if self._pass is None:
            self._pass = asyncio.get_running_loop().call_soon(self._work)

    def _loses(self, lower: str) -> bool:
        lost = self.deaf
        for name in (lower, ANYBODY):
            if not lost and self.lose_next and self.lose_next[name] > 0:
                self.lose_next[name] -= 1
                lost = True
        self.lost += lost
        return lost

    def close(self) -> None:
        """Drop the queued events."""
        self._waiting.clear()
        if self._pass is not None:
            self._pass.cancel()
            self._pass = None

    def _work(self) -> None:
        self._pass = None
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _EVENTS_PER_PASS))]
        if len(batch) > 1 and self._shuffle():
            self._swap(batch)
        for event in batch:
            self._tell(event)
        if self._waiting:
            self._pass = asyncio.get_running_loop().call_soon(self._work)

    def _swap(self, batch: list[Event]) -> None:
        at = 1
        while at < len(batch):
            if self._rng.random() < _SWAP_CHANCE:
                batch[at - 1], batch[at] = batch[at], batch[at - 1]
                at += 1
            at += 1

    def _tell(self, event: Event) -> None:
        for address in event.to:
            ears = self._ears.get(lowered(address))
            if not ears:
                continue
            frame = self._build(event, address)
            if frame is None:
                self.lost += 1
                continue
            for ear in tuple(ears):
                self.frames += 1
                ear.offer(frame)
