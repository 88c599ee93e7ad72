"""How much a ledger keeps and for how long."""

from __future__ import annotations

import msgspec

_DAY_S = 86_400.0

MAX_LATECOMERS = 200
"""Messages recorded out of the order of ids that a ledger remembers beyond its entries, at some 30 bytes each: those of
a burst on a socket, late-sent drafts, people added to old messages. Only readers behind a full ledger need them."""


class LedgerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and lifetimes of everything a store keeps. Times are in seconds."""

    max_entries: int = 1000
    """Entries a ledger holds before it trims. What a script costs grows with it: looking for an unknown id reads all
    the ids, 20 µs for 1000. Readers further behind go to the host."""

    max_gone: int = 2000
    """Trimmed messages remembered by id, 60 to 100 bytes each, until the list was compared below them (`ledger.book`).
    There are some only where more than ``max_entries`` arrive between two comparisons, or a sender's clock is ahead.
    Beyond so many, messages that were missed before them are given up."""

    ttl_s: float = 30 * _DAY_S
    """A ledger that nothing was appended to and nothing returned from for so long is dropped; the next request begins
    anew."""

    returned_ttl_s: float = _DAY_S
    """How long it is remembered which ids were returned above a position, and which positions were handed out."""

    max_marks: int = 1000
    """Such marks kept per caller, 100 bytes each; the oldest go first. As many as a ledger has entries is enough."""

    seed_limit: int = 64
    """Messages a new ledger takes over from the newest list page: enough to resume where an agent stopped reading."""

    activation_ttl_s: float = 2 * _DAY_S
    """How long an activation may outlive the last request. Longer than any idle time after which feeds stop, since a
    feed that is forgotten here stops without being told."""

    heartbeat_ttl_s: float = 10.0
    """A daemon silent for so long is dead and its callers go to others. Three missed beats at one every 3 s."""

    presence_ttl_s: float = 3600.0
    """How long operators are reminded of a process that fell silent without saying that it ends."""

    feed_ttl_s: float = 2 * _DAY_S
    """How long the last word about a feed is kept; as long as the activation it is about."""

    lease_ttl_s: float = 2 * _DAY_S
    """Only a broom: a lease is good while its holder's heartbeat is, whatever its own age."""

    chore_ttl_s: float = 7 * _DAY_S
    """Chores nobody could do for a week are dropped: the host cleans its own drafts by then."""

    def __post_init__(self) -> None:
        if self.max_entries < 1:
            raise ValueError(f"max_entries: {self.max_entries} is less than 1. A ledger must hold at least one entry.")
        if self.max_gone < 0:
            raise ValueError(f"max_gone: {self.max_gone} is negative. Say 0 to remember nothing that was trimmed.")
        if self.seed_limit < 0:
            raise ValueError(f"seed_limit: {self.seed_limit} is negative. Say 0 to begin ledgers empty.")
