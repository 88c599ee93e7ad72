"""The loss detector: messages that the list showed and a healthy socket never pushed."""

from __future__ import annotations

from collections.abc import Container, Iterable

from ledger.values import Seen

MAX_SUSPECTS = 256
"""Kept per feed; a host whose listener is deaf can lose thousands, and some of them tell the story."""


class LossDetector:
    """Tells a lost event from one that the list merely overtook: a suspect that is pushed after all is none."""

    __slots__ = ("_suspects",)

    def __init__(self) -> None:
        self._suspects: dict[int, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._suspects)

    def found(self, late: Iterable[tuple[Seen, float]], *, waiting: Container[object], now_s: float) -> bool:
        """Messages that only the list showed, each with how late (seconds); whether any of them is suspect.

        ``waiting`` holds the ids that were pushed and are being written. Reactions are no suspects: hosts push their
        subject instead (FMSG-003, WebSocket).
        """
        suspect = False
        for seen, late_s in late:
            pushed = seen.id in waiting
            if not pushed and not seen.reaction and len(self._suspects) < MAX_SUSPECTS:
                self._suspects[seen.id] = (now_s, late_s)
                suspect = True
        return suspect

    def pushed(self, message_id: int) -> None:
        """The message was pushed."""
        if self._suspects:
            self._suspects.pop(message_id, None)

    def lost(self, now_s: float, *, grace_s: float) -> list[float]:
        """How late each of those was found that nobody pushed within ``grace_s``; they are told once."""
        gone = [id_ for id_, (found_s, _) in self._suspects.items() if found_s + grace_s <= now_s]
        return [self._suspects.pop(id_)[1] for id_ in gone]

    def clear(self) -> None:
        """The socket closed: what it would have pushed nobody knows."""
        self._suspects.clear()
