"""An operator's bad day in small: tens of callers, and what happens to the fleet within a few seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.cluster import Sizes
from tests.chaos.mail import Mix
from tests.fleet.play import Plan, run
from tests.fleet.proxy import INSTALL, find_proxy
from tests.fleet.run import lines
from tests.fleet.scenarios import SCENARIOS, Pace, Shape

pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_proxy() is None, reason=INSTALL),
]

PACE = Pace(check_s=0.25, notice_s=1.0, stopped_s=5.0, down_s=1.0, quiet_s=1.0)
QUICK = {"FMSG_HEARTBEAT_TTL_SECONDS": "2", "FMSG_RECONCILE_SECONDS": "5"}


@pytest.mark.parametrize("shape", ["standalone", "sentinel", "cluster"])
async def test_no_agent_notices_more_than_a_slower_answer(shape: Shape, tmp_path: Path) -> None:
    """Nothing lost, nothing twice, everybody with one socket again, and no failed call while all is restarted."""
    plan = Plan(
        callers=24,
        messages_per_s=10.0,
        scenarios=tuple(scenario for scenario in SCENARIOS if scenario.shape == shape),
        sizes=Sizes(fronts=2, daemons=2, workers=1),
        settle_s=60.0,
        drain_s=60.0,
        pace=PACE,
        mix=Mix(burst=0.0, draft_waits_s=2.0),
        env=QUICK,
    )
    outcome = await run(plan, tmp_path)
    assert outcome.good, "\n".join(lines(outcome))
    assert all(result.messages for result in outcome.results)
