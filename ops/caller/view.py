"""What is known of one caller, as Redis tells it: ids and times, never content, senders or credentials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from fmsg.reference import format_reference
from ledger.port import FeedReport, Member, NoLedger
from ledger.store import RedisStore
from ledger.values import START, Arrival, CallerKey
from mcp_front.waiting.subscribed import list_subscriptions

SHOWN = 5
"""Entries shown of each end of a ledger."""

KINDS = {
    "subscriptions": "subscription",
    "idempotency_records": "send",
    "old_positions": "list_positions",
    "ledger_resets": "reset",
    "deleted_subscriptions": "deleted_subscription",
}
"""What fronts keep for a caller besides the ledger, and the kind of document it is."""

WORDS = {"subscriptions": "subscription", "idempotency_records": "idempotency record"}
"""The records that people know. The others only spare the caller repetitions."""


class ShownEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A ledger entry: its place, message reference, times, and how it was found."""

    at: str
    id: str
    arrived_at_s: float
    sent_at_s: float
    source: str


class LedgerEnds(msgspec.Struct, frozen=True, kw_only=True):
    """A ledger: its bounds, and the entries at both ends."""

    epoch: str
    held: int
    last: str
    low: str
    baseline_id: str
    baseline_time_s: float
    head: tuple[ShownEntry, ...]
    tail: tuple[ShownEntry, ...]


class AskedFor(msgspec.Struct, frozen=True, kw_only=True):
    """When the caller was asked for last, and until when the token of that request lasts (None: there is none)."""

    asked_at_s: float
    token_until_s: float | None


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon that holds the caller's lease."""

    daemon: str
    epoch: int
    alive: bool
    draining: bool


class KeptSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription: its position, and how many results were returned and not acknowledged."""

    name: str
    after_id: str
    outstanding: int
    created_s: float
    used_s: float
    readable: bool = True
    """Whether its record could be read. If not, only its name is known."""


class CallerView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `fmsg-mcpd caller` knows. Times are POSIX seconds."""

    address: str
    caller: CallerKey
    at_s: float
    sealed: bool
    """Whether there is an activation that does not open with our seal key."""
    asked: AskedFor | None
    owner: Owner | None
    feed: FeedReport | None
    ledger: LedgerEnds | None
    subscriptions: tuple[KeptSubscription, ...]
    kept: Mapping[str, int]
    """How many records of each of `KINDS` there are."""


def words_of(kept: Mapping[str, int]) -> str:
    """How many of each of `WORDS` there are, for people."""
    counts = ((kept.get(name, 0), word) for name, word in WORDS.items())
    return ", ".join(f"{count} {word}{'s' * (count != 1)}" for count, word in counts)


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """What a view means, and what to do about it."""

    what: str
    do: str = ""


async def look_at(store: RedisStore, *, address: str, caller: CallerKey) -> CallerView:
    """Look once. Raises `LedgerUnavailable`."""
    seconds, micros = await store.scripts.command("TIME", idempotent=True)
    activation = await store.activations.get(caller)
    sealed = activation is None and caller in await store.activations.active()
    members = {member.id: member for member in await store.fleet.members()}
    lease = (await store.fleet.holders([caller])).get(caller)
    asked = None
    if activation is not None:
        until_s = activation.token_expires_at_s if activation.token is not None else None
        asked = AskedFor(asked_at_s=activation.asked_at_s, token_until_s=until_s)
    return CallerView(
        address=address,
        caller=caller,
        at_s=int(seconds) + int(micros) / 1e6,
        sealed=sealed,
        asked=asked,
        owner=None if lease is None else _owner(lease.daemon, lease.epoch, members),
        feed=await store.activations.feed(caller),
        ledger=await _ends(store, caller),
        subscriptions=await _subscriptions(store, caller),
        kept={name: len(await store.documents.names(caller, kind)) for name, kind in KINDS.items()},
    )


def _owner(daemon: str, epoch: int, members: Mapping[str, Member]) -> Owner:
    member = members.get(daemon)
    return Owner(daemon=daemon, epoch=epoch, alive=member is not None, draining=member is not None and member.draining)


async def _ends(store: RedisStore, caller: CallerKey) -> LedgerEnds | None:
    state = await store.ledger.state(caller)
    if state is None:
        return None
    try:
        head = (await store.ledger.read(caller, START, SHOWN)).entries
        tail = (await store.ledger.read_back(caller, SHOWN)).entries
    except NoLedger:
        return None  # gone since
    known = {entry.at for entry in head}
    return LedgerEnds(
        epoch=state.epoch,
        held=state.held,
        last=str(state.last),
        low=str(state.low),
        baseline_id=format_reference(state.baseline.newest_id),
        baseline_time_s=state.baseline.time_s,
        head=tuple(map(_entry, head)),
        tail=tuple(_entry(entry) for entry in tail if entry.at not in known),
    )


def _entry(arrival: Arrival) -> ShownEntry:
    return ShownEntry(
        at=str(arrival.at),
        id=format_reference(arrival.id),
        arrived_at_s=arrival.arrived_at_s,
        sent_at_s=arrival.sent_at_s,
        source=arrival.source,
    )


async def _subscriptions(store: RedisStore, caller: CallerKey) -> tuple[KeptSubscription, ...]:
    return tuple(
        KeptSubscription(
            name=one.name,
            after_id=format_reference(one.after_id),
            outstanding=one.outstanding,
            created_s=one.created_s,
            used_s=one.used_s,
            readable=one.readable,
        )
        for one in await list_subscriptions(store.documents, caller)
    )


def remarks(view: CallerView) -> tuple[Remark, ...]:
    """What a view means, the most important first."""
    return tuple(_remarks(view))


def _remarks(view: CallerView) -> Iterator[Remark]:
    if view.sealed:
        yield Remark(
            what="its activation does not open with this FMSG_SEAL_KEY",
            do="Use the key of the fleet (an `up` that was given none makes its own at each start). If a rotation left "
            "the activation behind, the caller's next request makes a new one.",
        )
        return
    if view.asked is None:
        if view.ledger is None and not any(view.kept.values()):
            yield Remark(
                what="it is not known here",
                do="Check the address, and FMSG_API_URL and FMSG_REDIS_PREFIX: a caller is known by all three.",
            )
        else:
            yield Remark(what="no agent has asked for it in a while", do="Its next request wakes it.")
        return
    yield from _active(view, view.asked)


def _active(view: CallerView, asked: AskedFor) -> Iterator[Remark]:
    owner, feed = view.owner, view.feed
    if owner is None:
        yield Remark(what="no daemon has it, so fronts poll for it", do="See whether one runs: fmsg-mcpd status.")
    elif not owner.alive:
        yield Remark(
            what=f"its daemon {owner.daemon} is gone, so fronts poll for it",
            do="Another one takes it within seconds, if one runs: fmsg-mcpd status.",
        )
    elif feed is None:
        yield Remark(what="its daemon has not reported on it yet", do="Look again in a few seconds.")
    elif feed.daemon != owner.daemon:
        yield Remark(what=f"it moves from daemon {feed.daemon} to {owner.daemon}", do="Look again in a few seconds.")
    elif feed.live:
        yield Remark(what="its feed is live")
    else:
        yield _not_live(feed, asked)
        return
    if asked.token_until_s is None:
        yield Remark(
            what="there is no valid token for its feed",
            do="Its next request brings one. The socket stays open meanwhile, if the host allows it.",
        )


def _not_live(feed: FeedReport, asked: AskedFor) -> Remark:
    what = f"its feed is {feed.state}, so fronts poll for it" + (f": {feed.error}" if feed.error else "")
    if feed.state == "stopped":
        return Remark(
            what=what,
            do="The host refuses it: ask the host's operator. Then --reconnect, or its next new token, helps.",
        )
    if feed.needs_credential or asked.token_until_s is None:
        return Remark(what=what, do="It lacks a valid token: its next request brings one.")
    return Remark(what=what, do="It tries again by itself within a minute. --reconnect does so now.")
