"""`make chaos` in a minute: everything at once, in small."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.mail import Mix
from tests.chaos.report import lines
from tests.chaos.scenario import Plan, run

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

QUICK = {
    "FMSG_HEARTBEAT_TTL_SECONDS": "4",
    "FMSG_RECONCILE_SECONDS": "8",
    "FMSG_MAX_CONNECTS_PER_SECOND": "200",
    "FMSG_LOG_LEVEL": "warning",
}


async def test_a_minute_of_chaos_loses_nothing(tmp_path: Path) -> None:
    """Thirty callers, a thousand messages, and a fault every second or two."""
    plan = Plan(
        callers=30,
        messages=1000,
        seconds=25.0,
        seed=7,
        fault_every_s=1.5,
        drain_s=120.0,
        mix=Mix(draft_waits_s=5.0),
        env=QUICK,
    )
    outcome = await run(plan, tmp_path)
    assert outcome.good, "\n".join(lines(outcome, timeline=True))
    assert outcome.verdict.expected > 800
    assert len(outcome.faults) >= 8
