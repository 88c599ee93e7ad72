"""Who runs which caller's feed: rendezvous hashing with bounded loads. Pure, and the same on every daemon."""

# The theory
#
# Each caller ranks the daemons by a hash of (daemon, caller) and would be run by the first. A daemon that joins or
# leaves then moves only the callers that rank it first. But chance is uneven: with few callers to a daemon some get
# far more than their share. So each daemon has a capacity, a little above the share, and keeps the callers that rank
# highest *for it* (by the same hash); the others go on to their next choice, where the same rule holds. This is the
# stable matching of Gale and Shapley, and its result does not depend on the order in which it is computed: daemons
# that see the same members and the same callers agree without a word. While nobody is above capacity (the rule, with
# a hundred callers or more to a daemon) it is plain rendezvous hashing.
#
# Callers are ranked by their slot, the last digits of their key. So a million callers cost 65,536 rankings.
#
# Daemons that see slightly different callers for a moment may disagree. Leases keep that harmless: nobody closes a
# socket before another is open, and nobody opens one without the lease.

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, MutableMapping
from hashlib import blake2b

from ledger.values import CallerKey

HEADROOM = 1.15
"""A daemon carries at most this many times its share (rounded down, but never below the share rounded up). Less moves
more callers when one joins or leaves; more lets one daemon fill up while others have room."""

SLOT_DIGITS = 4
"""Digits of a caller key that make its slot: 16 callers to a slot at a million, and no two at a thousand."""

_MASK = 2**64 - 1


def capacity(callers: int, members: int) -> int:
    """How many of ``callers`` one of ``members`` (≥ 1) may carry."""
    share = callers / members
    return max(math.ceil(share), math.floor(HEADROOM * share))


def score(member: str, caller: CallerKey) -> int:
    """How much the two are meant for each other; 64 bits, higher is better, the same everywhere."""
    return _mix(_hash(member), _hash(slot_of(caller)))


def slot_of(caller: CallerKey) -> str:
    """The part of a caller key that it is ranked by."""
    return caller[-SLOT_DIGITS:]


def assign(
    members: Collection[str],
    callers: Iterable[CallerKey],
    *,
    first: MutableMapping[str, str] | None = None,
) -> dict[CallerKey, str]:
    """The owner of each caller; empty where there are no members.

    ``first`` remembers the first choices of slots between calls with the same members: the hashing is most of the cost.
    """
    hashes = {member: _hash(member) for member in members}
    if not hashes:
        return {}
    choices = {} if first is None else first
    chosen: dict[str, list[CallerKey]] = {member: [] for member in hashes}
    callers = frozenset(callers)
    for caller in callers:
        slot = caller[-SLOT_DIGITS:]
        choice = choices.get(slot)
        if choice is None:
            hashed = _hash(slot)
            choice = choices[slot] = max(hashes, key=lambda member: (_mix(hashes[member], hashed), member))
        chosen[choice].append(caller)
    limit = capacity(len(callers), len(hashes))
    if any(len(held) > limit for held in chosen.values()):
        return _even_out(hashes, chosen, limit)
    return {caller: member for member, held in chosen.items() for caller in held}


def _even_out(hashes: dict[str, int], chosen: dict[str, list[CallerKey]], limit: int) -> dict[CallerKey, str]:
    """Deferred acceptance: the least suited go on to their next choice until nobody is above ``limit``."""
    slots: dict[CallerKey, int] = {}
    held: dict[str, list[tuple[int, CallerKey]]] = {}
    for member, callers in chosen.items():
        for caller in callers:
            slots[caller] = _hash(slot_of(caller))
        held[member] = [(_mix(hashes[member], slots[caller]), caller) for caller in callers]
    refused: list[tuple[CallerKey, int]] = []
    turn: dict[CallerKey, int] = {}
    for best in held.values():
        heapq.heapify(best)
        while len(best) > limit:
            refused.append((heapq.heappop(best)[1], 1))
    while refused:
        caller, choice = refused.pop()
        turn[caller] = choice
        member = _rank(hashes, slots[caller])[choice]
        entry = (_mix(hashes[member], slots[caller]), caller)
        if len(held[member]) < limit:
            heapq.heappush(held[member], entry)
        else:
            loser = heapq.heappushpop(held[member], entry)[1]
            refused.append((loser, turn.get(loser, 0) + 1))
    return {caller: member for member, best in held.items() for _, caller in best}


def _rank(hashes: dict[str, int], slot: int) -> list[str]:
    return sorted(hashes, key=lambda member: (_mix(hashes[member], slot), member), reverse=True)


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _mix(member: int, caller: int) -> int:
    """The finalizer of splitmix64 over both: every bit of either changes half of the result."""
    mixed = (member ^ caller) + 0x9E3779B97F4A7C15 & _MASK
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
    return mixed ^ mixed >> 31
