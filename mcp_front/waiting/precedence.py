"""Which arrivals may lie after a position whose place in a ledger is an estimate, and which may have been returned.

Of a message known by its id and its time alone neither says when it arrived. A draft that is sent late, and a message
that somebody is added to, have low ids and the time at which they became available. A message that was long on its way
from another host has the id of its arrival and the time of its sending. So what has a higher id, or a later time, may
have arrived later; in doubt it comes again, marked.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from ledger.values import Arrival, LedgerState
from mcp_front.waiting.resets import LOOK_BACK_S, Unrest

SKEW_S = 120.0
"""An entry recorded so long before a message was sent arrived before it, whatever the clocks say."""
MARKS_S = 86_400.0
"""How long a handed-out position is remembered (`ledger.values.LedgerLimits.returned_ttl_s`)."""
CLOCKS_S = 2.0
"""How far the clocks of host and ledger are taken to differ, where only the ledger's is at hand."""
LOWEST = 9
"""Entries with the lowest ids that tell how far a ledger reaches back; the latest but one of them does. One may be a
late draft. That all others were on their way for long is out of the question."""


def may_follow(one: Arrival, message_id: int, at_s: float) -> bool:
    """Whether an arrival can have come after a message with this id and time, in spite of its place."""
    return one.id > message_id or one.sent_at_s > at_s


def reaches_back_to(entries: Sequence[Arrival], at_s: float) -> bool:
    """Whether what became available after this time has no lower id than these, but for drafts and the like."""
    lowest = sorted(entries, key=lambda entry: entry.id)[:LOWEST]
    return len(lowest) == LOWEST and sorted(entry.sent_at_s for entry in lowest)[-2] <= at_s


def perhaps_returned(
    before: Sequence[Arrival], follows: Collection[int], entry: Arrival, state: LedgerState, unrest: Unrest | None
) -> frozenset[int]:
    """Which entries before a message come again, marked, since they may have been returned or not.

    Those that may follow it, where it was handed out so long ago that nobody remembers; those that may have been
    unknown when it was handed out in another ledger.
    """
    again = frozenset[int]()
    if entry.n > state.seed_n and entry.arrived_at_s + MARKS_S < state.now_s:
        again = frozenset(follows)
    if unrest is None:
        return again
    since_s = entry.sent_at_s - LOOK_BACK_S
    young = (one for one in before if max(one.sent_at_s, one.arrived_at_s) >= since_s)
    return again.union(one.id for one in young if one.sent_at_s <= entry.sent_at_s)


def out_of_order(before: Sequence[Arrival], state: LedgerState) -> frozenset[int]:
    """Those recorded after messages with higher ids and later times: an emergency ledger hands positions out without
    them. It sees the host's list as it is then, in which they stand before what they came after here."""
    found: set[int] = set()
    top_id, top_s = 0, 0.0
    for one in before:
        if one.n > state.seed_n and one.id < top_id and one.sent_at_s < top_s:
            found.add(one.id)
        top_id, top_s = max(top_id, one.id), max(top_s, one.sent_at_s)
    return frozenset(found)


def arrived_after(one: Arrival, message_id: int, sent_at_s: float, state: LedgerState) -> bool:
    """Whether an arrival may have come after one of the caller's own messages was sent."""
    recorded_in_time = one.n <= state.seed_n or one.arrived_at_s > sent_at_s - SKEW_S
    return recorded_in_time and may_follow(one, message_id, sent_at_s)


def younger(
    entries: Sequence[Arrival], *, began_s: float, elapsed_s: float, host_time_s: float | None
) -> frozenset[int]:
    """Those of the newest entries that may be younger than the call, which began at ``began_s`` of the ledger's clock.

    What was pushed since is. What looks at the host found since, or a ledger that began took over, is judged by the
    time it carries. (A message that was long on its way and came in while the host was asked counts as older.)
    """
    earliest_s = began_s - CLOCKS_S if host_time_s is None else math.floor(host_time_s) - elapsed_s
    latest_s = earliest_s + elapsed_s + 3.0
    return frozenset(
        entry.id
        for entry in entries
        if (entry.source == "push" and entry.arrived_at_s >= began_s)
        or ((entry.arrived_at_s >= began_s or entry.source == "seed") and earliest_s < entry.sent_at_s <= latest_s)
    )
