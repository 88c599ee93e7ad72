"""What a wait is asked for and what it answers, as plain values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from ledger.values import Arrival

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
    skipped_count: int = 0
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
    seed_limit: int = 64
    """Messages a new ledger begins with; as `ledger.values.LedgerLimits.seed_limit`."""
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
    """Between safety re-reads of the ledger (with jitter): how late a message can be whose bell was lost."""
    confirm_s: float = 60.0
    """How old the host's acceptance of the key may be when something from the ledger alone is returned."""
    progress_s: float = 15.0
    """Between progress notifications, where the client asked for them."""
    retry_store_s: float = 2.0
    """How long after a failure the store is left alone before it is tried again."""
