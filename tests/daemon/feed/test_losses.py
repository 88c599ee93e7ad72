"""Which messages a socket lost."""

from __future__ import annotations

from daemon.feed.losses import MAX_SUSPECTS, LossDetector
from ledger.values import Seen


def late(*ids: int, reaction: bool = False) -> list[tuple[Seen, float]]:
    """Messages found in the list, each as late as its id says."""
    return [(Seen(id=id_, pid=None, root=id_, from_="@a@b.test", reaction=reaction), float(id_)) for id_ in ids]


def test_what_nobody_pushes_within_the_grace_is_lost_and_told_once() -> None:
    detector = LossDetector()
    assert detector.found(late(3, 4), waiting=(), now_s=100.0)
    assert detector.lost(104.9, grace_s=5.0) == []
    assert detector.lost(105.0, grace_s=5.0) == [3.0, 4.0]
    assert (detector.lost(200.0, grace_s=5.0), len(detector)) == ([], 0)


def test_what_the_list_merely_overtook_is_not_lost() -> None:
    detector = LossDetector()
    detector.found(late(3, 4), waiting=(), now_s=100.0)
    detector.pushed(3)
    detector.pushed(99)
    assert detector.lost(105.0, grace_s=5.0) == [4.0]


def test_what_is_being_written_is_not_suspect() -> None:
    assert not LossDetector().found(late(3), waiting={3}, now_s=100.0)


def test_reactions_are_not_suspect() -> None:
    assert not LossDetector().found(late(3, reaction=True), waiting=(), now_s=100.0)


def test_when_the_socket_closed_nobody_knows() -> None:
    detector = LossDetector()
    detector.found(late(3), waiting=(), now_s=100.0)
    detector.clear()
    assert detector.lost(200.0, grace_s=5.0) == []


def test_suspects_are_bounded() -> None:
    detector = LossDetector()
    detector.found(late(*range(1, 10 * MAX_SUSPECTS)), waiting=(), now_s=100.0)
    assert len(detector) == MAX_SUSPECTS
