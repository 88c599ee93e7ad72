"""Moments at which daemons may open a socket at the host: one after the other, evenly, for all daemons together."""

from __future__ import annotations

import math

import msgspec

LONGEST_AHEAD_S = 10.0
"""A next free moment further ahead comes from a clock that went back, and is forgotten."""


class ConnectSlots(msgspec.Struct, frozen=True, kw_only=True):
    """``count`` moments, the first in ``first_in_s``, the others ``every_s`` apart. No count: ask again about then."""

    first_in_s: float
    every_s: float
    count: int


def reserve_slots(
    free_at_s: float, now_s: float, *, count: int, every_s: float, within_s: float
) -> tuple[ConnectSlots, float]:
    """Up to ``count`` moments that begin within ``within_s``, and when the next one is free after them."""
    if not now_s <= free_at_s <= now_s + LONGEST_AHEAD_S:
        free_at_s = now_s
    room = math.floor((now_s + within_s - free_at_s) / every_s) + 1
    granted = max(0, min(count, room))
    slots = ConnectSlots(first_in_s=free_at_s - now_s, every_s=every_s, count=granted)
    return slots, free_at_s + granted * every_s
