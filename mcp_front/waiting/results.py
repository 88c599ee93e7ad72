"""Decisions and deliveries as what a wait answers."""

from __future__ import annotations

from collections import Counter

from ledger.port import LedgerUnavailable
from mcp_front.waiting.cursor import Cursor, Decided
from mcp_front.waiting.decide import SHOWN, Return, thread_of
from mcp_front.waiting.policy import Pending
from mcp_front.waiting.request import TRANSIENT, Transport, WaitOutcome
from mcp_front.waiting.subscriptions import SubscriptionDelivery

STORE_AWAY = (
    "The server's store is away, so nothing new can be returned. Call again with the same after_id. "
    "list_messages still works."
)
HOST_AWAY = "The fmsg host has not answered for some time. Call again with the same after_id."
NO_THREAD = "The thread of this message could not be determined, so it is returned alone."


def notes_on(trouble: Exception | None) -> tuple[str, ...]:
    """What the agent should know of what went wrong."""
    if isinstance(trouble, LedgerUnavailable):
        return (STORE_AWAY,)
    return (HOST_AWAY,) if isinstance(trouble, TRANSIENT) else ()


def answer(
    found: Decided, decision: Return, cursor: Cursor, *, after_id: int, transport: Transport, notes: tuple[str, ...]
) -> WaitOutcome:
    """A batch is returned."""
    skipped = (*cursor.skipped, *decision.progress.skipped)
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
        skipped_counts=cursor.skipped_counts + Counter(reason for _, reason in decision.progress.skipped),
        already_returned=frozenset(entry.id for entry in decision.batch if entry.id in found.view.returned),
        notes=(*(text for text in own_notes if text), *notes),
        transport=transport,
    )


def answer_again(
    delivery: SubscriptionDelivery, pending: Pending, *, again: bool, transport: Transport, notes: tuple[str, ...]
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
        pending=pending.messages,
        pending_count=pending.count,
        redelivered=frozenset(entry.id for entry in entries) if again else frozenset(),
        notes=notes,
        transport=transport,
    )


def answer_nothing(
    cursor: Cursor | None, *, after_id: int, transport: Transport, notes: tuple[str, ...]
) -> WaitOutcome:
    """The time is over; ``cursor`` None where nothing may be said of what was passed over."""
    return WaitOutcome(
        status="timeout",
        after_id=after_id,
        skipped=tuple(cursor.skipped) if cursor else (),
        skipped_counts=cursor.skipped_counts if cursor else {},
        notes=notes,
        transport=transport,
    )
