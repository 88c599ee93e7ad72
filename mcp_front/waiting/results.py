"""Decisions and deliveries as what a wait answers."""

from __future__ import annotations

from ledger.port import LedgerUnavailable
from mcp_front.waiting.behind import Behind
from mcp_front.waiting.cursor import Found, Pursuit
from mcp_front.waiting.decide import SHOWN, Return, thread_of
from mcp_front.waiting.request import Transport, WaitOutcome
from mcp_front.waiting.subscriptions import Delivery
from mcp_front.waiting.trouble import PASSING

STORE_AWAY = (
    "the server's store is away: messages are found by polling the host; after_id stays the same, "
    "and they come once more when the store is back"
)
SUBSCRIPTION_AWAY = "the server's store is away, and the subscription with it: nothing is lost, call again"
HOST_AWAY = "the fmsg host did not answer for some time; nothing is lost, call again"
NO_THREAD = "the thread of this message could not be determined; it is returned alone"


def notes_on(trouble: Exception | None, *, emergency: bool, subscribed: bool) -> tuple[str, ...]:
    """What the agent should know of what went wrong. ``emergency``: a store of this process alone was used."""
    notes: list[str] = []
    if subscribed and isinstance(trouble, LedgerUnavailable):
        notes.append(SUBSCRIPTION_AWAY)
    elif emergency:
        notes.append(STORE_AWAY)
    if isinstance(trouble, PASSING):
        notes.append(HOST_AWAY)
    return tuple(notes)


def answer(
    found: Found, decision: Return, pursuit: Pursuit, *, after_id: int, transport: Transport, notes: tuple[str, ...]
) -> WaitOutcome:
    """A batch is returned."""
    skipped = (*pursuit.skipped, *decision.progress.skipped)
    own_notes = (decision.note, None if decision.thread_root else NO_THREAD)
    return WaitOutcome(
        status="message",
        after_id=after_id,
        ids=decision.batch,
        thread_root_id=decision.thread_root,
        reply_target_id=decision.reply_target,
        pending=decision.pending,
        pending_count=decision.pending_count,
        skipped=skipped[-SHOWN:],
        skipped_count=pursuit.skipped_count + len(decision.progress.skipped),
        already_returned=frozenset(entry.id for entry in decision.batch if entry.id in found.view.returned),
        notes=(*(text for text in own_notes if text), *notes),
        transport=transport,
    )


def answer_again(
    delivery: Delivery, behind: Behind, *, again: bool, transport: Transport, notes: tuple[str, ...]
) -> WaitOutcome:
    """A subscription gives a delivery again; not ``again`` where it was this very call's, which never heard."""
    entries = tuple(piece.arrival() for piece in delivery.pieces)
    open_ended = [entry.id for entry in entries if not entry.terminal]
    root = thread_of(entries[0]) if entries else 0
    return WaitOutcome(
        status="message",
        after_id=delivery.after_id,
        ids=entries,
        thread_root_id=root or None,
        reply_target_id=open_ended[-1] if open_ended else None,
        pending=behind.pending,
        pending_count=behind.count,
        redelivered=frozenset(entry.id for entry in entries) if again else frozenset(),
        notes=notes,
        transport=transport,
    )


def answer_nothing(
    pursuit: Pursuit | None, *, after_id: int, transport: Transport, notes: tuple[str, ...]
) -> WaitOutcome:
    """The time is over; ``pursuit`` None where nothing may be said of what was passed over."""
    return WaitOutcome(
        status="timeout",
        after_id=after_id,
        skipped=tuple(pursuit.skipped) if pursuit else (),
        skipped_count=pursuit.skipped_count if pursuit else 0,
        notes=notes,
        transport=transport,
    )
