"""How large a run is. Everything is bounded here: connections, callers and time."""

from __future__ import annotations

import msgspec


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Counts, and times in seconds."""

    name: str
    hold_steps: tuple[int, ...]
    """Callers that wait, each with one wait."""
    one_caller_steps: tuple[int, ...]
    """Waits of one caller."""
    idle_s: float
    """How long idle CPU is measured."""
    renew_s: float
    """Length of the waits that run out and are renewed."""
    wake_waiting: int
    """Callers that wait while one of them is woken, or all."""
    wakes: int
    """Wakes one at a time."""
    all_rounds: int
    rate_callers: int
    rate_s: float
    connections: tuple[int, ...]
    """Of the tool calls."""
    tool_s: float
    tool_rounds: int
    stdio_starts: int
    soak_callers: int
    soak_s: float
    crowd_fleets: int
    crowd_each: int
    """Callers of each fleet of the crowd."""
    crowd_wait_s: float
    settle_s: float = 60.0
    """Longest that quiet is waited for."""
    own_clusters: bool = True
    """Whether each scenario gets processes of its own, so that none measures what another left behind."""


FULL = Size(
    name="full",
    hold_steps=(100, 1_000, 3_000, 10_000),
    one_caller_steps=(1, 50, 1_000),
    idle_s=20.0,
    renew_s=60.0,
    wake_waiting=1_000,
    wakes=300,
    all_rounds=3,
    rate_callers=200,
    rate_s=10.0,
    connections=(1, 16, 64),
    tool_s=3.0,
    tool_rounds=3,
    stdio_starts=11,
    soak_callers=2_000,
    soak_s=600.0,
    crowd_fleets=4,
    crowd_each=10_000,
    crowd_wait_s=230.0,
)
"""All that the aims speak of."""

QUICK = Size(
    name="quick",
    hold_steps=(100, 500),
    one_caller_steps=(1, 50),
    idle_s=5.0,
    renew_s=8.0,
    wake_waiting=100,
    wakes=60,
    all_rounds=2,
    rate_callers=50,
    rate_s=3.0,
    connections=(1, 16),
    tool_s=1.0,
    tool_rounds=2,
    stdio_starts=3,
    soak_callers=100,
    soak_s=30.0,
    crowd_fleets=2,
    crowd_each=250,
    crowd_wait_s=10.0,
    settle_s=15.0,
)
"""A look at whether something has become worse, in two minutes."""

TINY = Size(
    name="tiny",
    hold_steps=(5, 10),
    one_caller_steps=(1, 3),
    idle_s=0.1,
    renew_s=1.0,
    wake_waiting=4,
    wakes=3,
    all_rounds=1,
    rate_callers=2,
    rate_s=0.3,
    connections=(1,),
    tool_s=0.2,
    tool_rounds=1,
    stdio_starts=1,
    soak_callers=4,
    soak_s=1.0,
    crowd_fleets=2,
    crowd_each=4,
    crowd_wait_s=1.0,
    settle_s=0.2,
    own_clusters=False,
)
"""Whether the bench itself works. Its figures mean nothing."""

SIZES = {size.name: size for size in (FULL, QUICK, TINY)}
"""By name."""
