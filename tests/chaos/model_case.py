"""What happens in one case of the model: messages, faults and consumers, as plain values that a seed makes."""

from __future__ import annotations

import random

import msgspec

BUSY_S = 60.0
"""Events happen so long; then everything is mended."""

ALL_FAULTS = frozenset({"feed", "store", "host", "front", "clock", "bells", "flush", "lost"})


class Op(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event at a time in seconds; before 0 it is history when the case begins.

    ``kind``: message, draft, send, foreign (not for us), add (us to it), own, feed, store, host, front, clock, bells.
    ``id`` is the message's, ``pid`` what it replies to; ``what`` says which fault begins or ends. ``late_s``: the
    message carries a time so long before it arrives; ``delay_s`` until it is pushed, unless ``lost``; ``twice`` pushed.
    """

    at_s: float
    kind: str
    id: int = 0
    pid: int | None = None
    sender: str = "ann"
    flavor: str = "normal"
    late_s: float = 0.0
    delay_s: float = 0.05
    lost: bool = False
    twice: bool = False
    what: str = ""
    number: float = 0.0


class Consumer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent that keeps calling. ``start``: now, zero, listed or own; ``seed`` makes its pauses and accidents."""

    at_s: float
    start: str
    seed: int
    subscription: str | None = None
    from_: str | None = None
    thread_of: int | None = None
    accidents: float = 0.0


class Case(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole case."""

    ops: tuple[Op, ...]
    consumers: tuple[Consumer, ...]
    max_entries: int = 1000
    snapshot: int = 64
    live: bool = True
    cold: bool = False
    latency_s: float = 0.0

    def has(self, *whats: str) -> bool:
        """Whether one of these faults occurs."""
        return any(op.what in whats or op.kind in whats for op in self.ops)


def make_case(seed: int) -> Case:
    """The case of a seed."""
    return _Maker(random.Random(seed)).make()


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._next_id = 1
        self._ops: list[Op] = []
        self._prompt = False
        self._subscribed: dict[str, tuple[str, str | None]] = {}
        self._sent: list[int] = []
        self._threads: list[int] = []

    def make(self) -> Case:
        rng = self._rng
        max_entries = rng.choice((1000, 1000, 30, 8))
        # A push that comes when its message was trimmed already is recorded as new: 1000 entries later in earnest.
        self._prompt = max_entries < 64
        for ago_s in sorted((rng.uniform(1.0, 400.0) for _ in range(rng.choice((0, 0, 3, 10, 30)))), reverse=True):
            self._message(-ago_s)
        # Where entries are trimmed a moment after they came, a store that fails as well leaves no order to hold on to,
        # and what a feed misses is trimmed past before anybody compares.
        possible = ALL_FAULTS - {"store", "flush", "feed", "lost"} if self._prompt else ALL_FAULTS
        faults = rng.sample(sorted(possible), rng.choice((0, 0, 1, 1, 2, 3)))
        at_s = 0.0
        pace_s = rng.choice((0.4, 2.0, 6.0))
        while (at_s := at_s + rng.expovariate(1.0 / pace_s)) < BUSY_S and len(self._ops) < 60:
            self._event(at_s, "lost" in faults)
        for fault in faults:
            self._fault(fault)
        consumers = tuple(self._consumer() for _ in range(rng.choice((1, 1, 2, 3))))
        new_ids = self._ids_in_order()
        return Case(
            ops=tuple(_renamed(op, new_ids) for op in sorted(self._ops, key=lambda op: op.at_s)),
            consumers=tuple(msgspec.structs.replace(one, thread_of=new_ids.get(one.thread_of)) for one in consumers),
            max_entries=max_entries,
            snapshot=rng.choice((64, 64, 5)) if max_entries > 64 else 5,
            live=rng.random() < 0.75,
            cold=rng.random() < 0.4,
            latency_s=rng.choice((0.0, 0.0, 0.05, 0.4)),
        )

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _ids_in_order(self) -> dict[int | None, int]:
        """The host gives ids when messages (or their drafts) are made: growing with time."""
        made = [op.id for op in sorted(self._ops, key=lambda op: op.at_s) if op.id and op.kind not in ("send", "add")]
        new_ids: dict[int | None, int] = {}
        new_id = 0
        for id_ in made:
            new_id += self._rng.choice((1, 1, 1, 2, 7))
            new_ids[id_] = new_id
        return new_ids

    def _pid(self) -> int | None:
        return self._rng.choice(self._threads[-4:]) if self._threads and self._rng.random() < 0.6 else None

    def _message(self, at_s: float, *, may_be_lost: bool = False) -> None:
        rng = self._rng
        flavor = rng.choices(("normal", "no_reply", "reaction", "terminal"), (12, 1, 1, 1))[0]
        id_ = self._new_id()
        pid = self._pid()
        self._ops.append(
            Op(
                at_s=at_s,
                kind="message",
                id=id_,
                pid=pid,
                sender=rng.choices(("ann", "ben", "me"), (6, 3, 1))[0],
                flavor=flavor,
                late_s=rng.choice((0.0, 0.0, 0.0, 5.0, 300.0)),
                delay_s=0.05 if self._prompt else rng.choice((0.0, 0.05, 0.3, 1.5)),
                lost=may_be_lost and rng.random() < 0.3,
                twice=rng.random() < 0.1 and not self._prompt,
            )
        )
        if flavor == "normal":
            self._threads.append(id_)

    def _event(self, at_s: float, may_be_lost: bool) -> None:
        rng = self._rng
        kind = rng.choices(("message", "draft", "add", "own", "burst"), (14, 2, 2, 2, 1))[0]
        if kind == "message":
            self._message(at_s, may_be_lost=may_be_lost)
        elif kind == "burst":
            for _ in range(rng.randrange(3, 9)):
                at_s += rng.uniform(0.0, 0.2)
                self._message(at_s, may_be_lost=may_be_lost)
        elif kind == "own":
            self._ops.append(Op(at_s=at_s, kind="own", id=self._new_id(), pid=self._pid(), sender="me"))
            self._threads.append(self._ops[-1].id)
        else:
            first, then = ("draft", "send") if kind == "draft" else ("foreign", "add")
            id_, pid = self._new_id(), self._pid()
            earlier_s = max(at_s - rng.choice((1.0, 20.0, 90.0)), -50.0)
            self._ops.append(Op(at_s=earlier_s, kind=first, id=id_, pid=pid))
            self._ops.append(Op(at_s=at_s, kind=then, id=id_))

    def _fault(self, fault: str) -> None:
        rng = self._rng
        for _ in range(rng.choice((1, 1, 2))):
            at_s = rng.uniform(0.0, BUSY_S - 5.0)
            until_s = min(at_s + rng.choice((0.5, 4.0, 15.0)), BUSY_S)
            if fault == "feed":
                self._between(at_s, until_s, "feed", *rng.choice((("break", "repair"), ("die", "revive"))))
            elif fault == "store":
                self._between(
                    at_s, until_s, "store", *rng.choice((("down", "up"), ("lossy", "sound"), ("refusing", "taking")))
                )
            elif fault == "host":
                self._between(at_s, until_s, "host", "host down", "host up")
            elif fault == "bells":
                self._between(at_s, until_s, "bells", "deaf", "hearing")
            elif fault == "flush":
                self._ops.append(Op(at_s=at_s, kind="store", what="flush"))
            elif fault == "front":
                self._ops.append(Op(at_s=at_s, kind="front", what="restart", number=rng.randrange(2)))
            elif fault == "clock":
                self._ops.append(Op(at_s=at_s, kind="clock", what="step", number=rng.choice((-30.0, -2.0, 2.0, 30.0))))

    def _between(self, at_s: float, until_s: float, kind: str, begin: str, end: str) -> None:
        self._ops.append(Op(at_s=at_s, kind=kind, what=begin))
        self._ops.append(Op(at_s=until_s, kind=kind, what=end))

    def _consumer(self) -> Consumer:
        rng = self._rng
        start = rng.choices(("now", "zero", "listed", "own"), (4, 2, 2, 2))[0]
        subscription = rng.choice((None, None, "main", "other"))
        from_, thread_of = None, None
        if rng.random() < 0.35:
            from_ = rng.choice((None, "ann", "ben"))
            thread_of = rng.choice(self._threads[:5]) if self._threads and rng.random() < 0.5 else None
        if subscription is not None:
            # Filters and start of a subscription are the same for all its consumers, whoever comes first.
            start = start if start in ("now", "zero") else "now"
            start, from_ = self._subscribed.setdefault(subscription, (start, from_))
            thread_of = None
        return Consumer(
            at_s=rng.choice((0.0, 0.0, rng.uniform(0.0, 30.0))),
            start=start,
            seed=rng.randrange(2**32),
            subscription=subscription,
            from_=from_,
            thread_of=thread_of,
            accidents=rng.choice((0.0, 0.0, 0.3)),
        )


def _renamed(op: Op, new_ids: dict[int | None, int]) -> Op:
    return msgspec.structs.replace(op, id=new_ids.get(op.id, 0), pid=new_ids.get(op.pid))
