"""What a wait is asked for, what it answers, what it is refused for and which failures it outlasts.

BadInput
└── WaitError                 an argument of a wait cannot be followed
    ├── UnknownPosition       ``after_id`` is no message of the caller
    ├── UnknownThread         ``thread_of`` is no message the host knows
    └── SubscriptionRefused   the name, the number or the filters of a subscription
LedgerUnavailable
└── SubscriptionAway          a subscription's position cannot be read now

What the host or the store cannot do now is no error of a wait: it holds until its time limit, and then names the
position to go on from. Only a subscription whose position nobody knows but the store has none to name.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

import msgspec

from fmsg.backoff import backoff_s
from fmsg.errors import BadInput, CredentialMissing, FmsgError, Transient
from ledger.port import LedgerUnavailable
from ledger.values import Arrival

TRANSIENT = (CredentialMissing, Transient)
"""The host is in trouble or wants to be left alone; a later request may succeed. Everything else is an answer."""
FIRST_DELAY_S = 1.0
"""After the first failure: a connection that was cut is back by then."""

Reason = Literal["own", "reaction", "no_reply", "from_mismatch", "other_thread"]
"""Why an arrival was passed over."""

Transport = Literal["websocket", "poll"]
"""``websocket`` while a live feed records the caller's arrivals, ``poll`` while the front asks the host itself."""

Fit = Callable[[Sequence[Arrival]], Awaitable[int]]
"""Fetches what a batch needs and says how many of its messages, from the first on, fit into the result (at least one).

Called before anything is marked as returned, so that the rest comes with the next call. It may be called again with
another batch when another consumer of a subscription was faster.
"""


class WaitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of ``wait_for_message``, checked for form. Durations in seconds."""

    after_id: int | None = None
    """The position to go on from: 0 is before everything, None is now or where the subscription stands."""
    thread_of: int | None = None
    """Any message of the thread to wait on."""
    from_: str | None = None
    """The full address to wait for."""
    timeout_s: float = 50.0
    settle_s: float = 3.0
    subscription: str | None = None


class WaitOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a wait. Lists are in order of arrival."""

    status: Literal["message", "timeout"]
    after_id: int
    """The position to pass on the next call: everything below it that qualifies has been returned."""
    ids: tuple[Arrival, ...] = ()
    """The batch: messages of one thread."""
    thread_root_id: int | None = None
    reply_target_id: int | None = None
    """The last message of the batch that can be replied to."""
    pending: tuple[Arrival, ...] = ()
    """Qualifying messages that come with the next calls (some of them, where there are many)."""
    pending_count: int = 0
    skipped: tuple[tuple[int, Reason], ...] = ()
    """What the position moved past without returning it (the newest, where there are many)."""
    skipped_counts: Mapping[Reason, int] = {}
    """How many it moved past, by reason."""
    began_id: int = 0
    """The position this call began with: from there a wait without filters brings what they passed over."""
    older_unread: int = 0
    """Unread messages from before a call that began at "now", as far as the newest page of the list shows them."""
    older_unread_more: bool = False
    """Whether there may be more of them."""
    already_returned: frozenset[int] = frozenset()
    """Those of the batch that an earlier call returned above its ``after_id``."""
    redelivered: frozenset[int] = frozenset()
    """Those of the batch that the subscription returned before and nobody acknowledged."""
    notes: tuple[str, ...] = ()
    transport: Transport = "poll"


class WaitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How waits behave in one process. Durations in seconds."""

    max_batch: int = 100
    """Messages in one result: what an agent can read at once, and one page of the host."""
    activate_s: float = 300.0
    """How often a caller with a live feed is reported active. Well below the idle time after which feeds stop."""
    activate_unsettled_s: float = 60.0
    """The same while no feed is live: the store may have forgotten that the caller is active."""
    feed_cache_s: float = 2.0
    """How long the last word on a caller's feed and on the daemons is believed."""
    no_feed_cache_s: float = 0.25
    """The same for the word that there is no live feed: the first request of a caller brings one within moments."""
    poll_s: float = 3.0
    """Between looks at the host's list while no feed is live: 20 requests a minute for one caller."""
    poll_max_s: float = 30.0
    """The same while the host fails: it doubles up to here."""
    reread_s: float = 17.5
    """Between safety re-reads of the ledger (with jitter): how late a message can be whose notification was
    lost."""
    confirm_s: float = 60.0
    """How old the host's acceptance of the key may be when something from the ledger alone is returned."""
    progress_s: float = 15.0
    """Between progress notifications, where the client asked for them."""


class WaitError(BadInput):
    """An argument of a wait cannot be followed. The text names it, the reason and the next step."""


class UnknownPosition(WaitError):
    """``after_id`` names nothing the caller received or sent."""


class UnknownThread(WaitError):
    """``thread_of`` names nothing the host knows."""


class SubscriptionRefused(WaitError):
    """A subscription cannot be used this way: its name, its filters, or too many of them."""


class SubscriptionAway(LedgerUnavailable):
    """The store that keeps a subscription did not answer within the time limit. The text names the subscription."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The server's store, which keeps the position of subscription {name}, did not answer within the time "
            "limit. Nothing is lost: no message was passed over."
        )


def retry_after_s(error: FmsgError, failures: int, *, longest_s: float, rng: random.Random) -> float:
    """How long to leave the host alone after so many failures in a row, and at least as long as it asked for."""
    delay_s = backoff_s(failures, rng, base_s=FIRST_DELAY_S, cap_s=longest_s, least=0.5)
    return max(delay_s, error.retry_after_s or 0.0)
