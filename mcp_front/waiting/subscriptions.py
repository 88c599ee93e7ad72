"""Named positions that the server keeps: what was given, what is acknowledged, what comes again. Pure values.

A subscription goes forward along the arrivals. Its *frontier* is the position below which everything was given or
passed over; what was given above it is remembered by id. Each result is a *delivery*, outstanding until its
``after_id`` comes back. What an outstanding delivery holds is kept, so it can come again whatever became of the ledger.

- A call that passes the ``after_id`` of an outstanding delivery acknowledges it.
- A call that acknowledges nothing gets the oldest outstanding delivery again, whether its agent died, its answer was
  lost, or it passes some other id: in doubt twice and marked, never not at all.
- A call that acknowledges one delivery while others are out is one consumer of several: what another was given a short
  while ago is left to that one.
- Deliveries made while a call waits are somebody else's: the call waits on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from fmsg.reference import format_reference
from ledger.values import START, Arrival
from mcp_front.waiting.positions import Position
from mcp_front.waiting.request import SubscriptionRefused

MAX_SUBSCRIPTIONS = 32
"""Subscriptions per caller: one per task of a busy agent; each costs some kilobytes in the store."""
MAX_OUTSTANDING = 32
"""Deliveries out at a time; then the oldest comes again before anything new."""
MAX_OUTSTANDING_MESSAGES = 500
"""Messages in all of them together: each is kept with some 60 bytes, and the whole is stored anew with each result."""
MAX_RECENT = 256
"""Given ids remembered below the frontier, for a ledger that began anew and whose order is an estimate."""
MAX_ABOVE = 2000
"""Given ids remembered above the frontier: more than a wait reads ahead."""
MAX_ACKNOWLEDGED = 16
"""``after_id`` of past deliveries that are recognized, so that a repeated call is told apart from a wrong one."""
LEFT_ALONE_S = 60.0
"""How long an outstanding delivery is left to its consumer while others go on acknowledging theirs."""
TTL_S = 90 * 86_400.0
"""A subscription nobody used for so long is dropped."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)

Acknowledgement = Literal["none", "acknowledged", "known", "foreign"]
"""What an ``after_id`` meant: not given, an outstanding delivery's, a former one's or the frontier's, or neither."""


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """What is kept of a delivered message."""

    id: int
    pid: int | None
    root: int
    from_: str
    terminal: bool
    sent_at_s: float

    def arrival(self) -> Arrival:
        """As an entry without a place."""
        return Arrival(
            at=START,
            id=self.id,
            pid=self.pid,
            root=self.root,
            from_=self.from_,
            terminal=self.terminal,
            sent_at_s=self.sent_at_s,
        )


class SubscriptionDelivery(msgspec.Struct, frozen=True, array_like=True):
    """A result that was given: ``seq`` orders deliveries, ``by`` is the call that got it, ``times`` how often it was.

    ``at_s`` is the ledger's clock.
    """

    seq: int
    by: str
    after_id: int
    at_s: float
    pieces: tuple[Piece, ...]
    times: int = 1


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one subscription."""

    thread_root: int | None
    from_: str | None
    frontier: Position
    created_s: float
    used_s: float
    seq: int = 0
    above: tuple[int, ...] = ()
    recent: tuple[int, ...] = ()
    outstanding: tuple[SubscriptionDelivery, ...] = ()
    acknowledged: tuple[int, ...] = ()

    @property
    def is_full(self) -> bool:
        """Whether so much is outstanding that nothing new may be given."""
        messages = sum(len(delivery.pieces) for delivery in self.outstanding)
        return len(self.outstanding) >= MAX_OUTSTANDING or messages >= MAX_OUTSTANDING_MESSAGES

    @property
    def given(self) -> frozenset[int]:
        """Every id that is known to have been given."""
        return frozenset((*self.above, *self.recent))


def check_name(name: str) -> str:
    """The name, if it may be one. Raises `SubscriptionRefused`."""
    if not _NAME.fullmatch(name):
        raise SubscriptionRefused(
            f"subscription: {name[:80]!r} is no name for one. Use 1 to 64 letters, digits, dots, dashes and "
            "underscores."
        )
    return name


def check_filters(name: str, state: Subscription, *, thread_root: int | None, from_: str | None) -> None:
    """Refuse filters other than those the subscription was made with; none given means the same. Raises."""
    for argument, made_with, asked in (
        ("thread_of", _thread_words(state.thread_root), None if thread_root is None else _thread_words(thread_root)),
        ("from", state.from_ or "anybody", from_),
    ):
        if asked is not None and asked != made_with:
            raise SubscriptionRefused(
                f"subscription: {name} was made with {argument} = {made_with}, and this call asks for {asked}. "
                "The filters of a subscription do not change: use another name, or delete it with wait_subscriptions."
            )


def _thread_words(root: int | None) -> str:
    return "any thread" if root is None else f"the thread of {format_reference(root)}"


def begin(start: Position, *, thread_root: int | None, from_: str | None, now_s: float) -> Subscription:
    """A new subscription that goes on from ``start``."""
    return Subscription(
        thread_root=thread_root,
        from_=from_,
        frontier=start,
        created_s=now_s,
        used_s=now_s,
        acknowledged=(start.id,),
    )


def harmless_after_id(state: Subscription, asked: int | None) -> int:
    """The position to name in a result that delivers nothing: passed back, it must acknowledge nobody's delivery."""
    outstanding = {delivery.after_id for delivery in state.outstanding}
    for candidate in (state.frontier.id, asked, *reversed(state.acknowledged)):
        if candidate is not None and candidate not in outstanding:
            return candidate
    return 0


def acknowledge(state: Subscription, after_id: int | None) -> tuple[Subscription, Acknowledgement]:
    """The state after a call passed ``after_id``, and what that meant."""
    if after_id is None:
        return state, "none"
    met = [delivery for delivery in state.outstanding if delivery.after_id == after_id]
    if not met:
        known = after_id in state.acknowledged or after_id == state.frontier.id
        return state, "known" if known else "foreign"
    return (
        msgspec.structs.replace(
            state,
            outstanding=tuple(delivery for delivery in state.outstanding if delivery.after_id != after_id),
            acknowledged=(*state.acknowledged, after_id)[-MAX_ACKNOWLEDGED:],
        ),
        "acknowledged",
    )


def to_redeliver(
    state: Subscription, *, began_seq: int, acknowledged: bool, now_s: float
) -> tuple[SubscriptionDelivery | None, float | None]:
    """The delivery that a call which began at ``began_seq`` gets again; else when to look again (None: no need to)."""
    theirs = [delivery for delivery in state.outstanding if delivery.seq <= began_seq]
    if not acknowledged:
        return (theirs[0] if theirs else None), None
    due = [(delivery.at_s + LEFT_ALONE_S, delivery) for delivery in theirs]
    ready = [delivery for due_s, delivery in due if due_s <= now_s]
    return (ready[0], None) if ready else (None, min((due_s for due_s, _ in due), default=None))


def redeliver(state: Subscription, delivery: SubscriptionDelivery, *, by: str, now_s: float) -> Subscription:
    """The same delivery again, to another call."""
    seq = state.seq + 1
    again = msgspec.structs.replace(delivery, seq=seq, by=by, at_s=now_s, times=delivery.times + 1)
    others = tuple(one for one in state.outstanding if one.seq != delivery.seq)
    return msgspec.structs.replace(state, seq=seq, outstanding=(*others, again), used_s=now_s)


def advance(state: Subscription, frontier: Position, passed: frozenset[int], *, now_s: float) -> Subscription:
    """The frontier moved past entries with these ids."""
    given_below = [id_ for id_ in state.above if id_ in passed]
    return msgspec.structs.replace(
        state,
        frontier=frontier,
        above=tuple(id_ for id_ in state.above if id_ not in passed),
        recent=(*state.recent, *given_below)[-MAX_RECENT:],
        used_s=now_s,
    )


def deliver(
    state: Subscription,
    batch: Sequence[Arrival],
    *,
    frontier: Position,
    passed: frozenset[int],
    by: str,
    now_s: float,
    never_again: frozenset[int] = frozenset(),
) -> Subscription:
    """A new batch is given.

    ``passed`` are the ids the frontier moved past, those of the batch among them or not; ``never_again`` ids behind it
    that are not to be given.
    """
    above = (*state.above, *(entry.id for entry in batch), *never_again)
    given = msgspec.structs.replace(state, above=above[-MAX_ABOVE:])
    seq = state.seq + 1
    delivery = SubscriptionDelivery(seq, by, frontier.id, now_s, tuple(_piece(entry) for entry in batch))
    return msgspec.structs.replace(
        advance(given, frontier, passed, now_s=now_s), seq=seq, outstanding=(*state.outstanding, delivery)
    )


def _piece(entry: Arrival) -> Piece:
    return Piece(entry.id, entry.pid, entry.root, entry.from_, entry.terminal, entry.sent_at_s)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Subscription)


def encode(state: Subscription) -> bytes:
    """As stored."""
    return _encoder.encode(state)


def decode(data: bytes) -> Subscription:
    """From the store. Raises `msgspec.DecodeError`."""
    return _decoder.decode(data)
