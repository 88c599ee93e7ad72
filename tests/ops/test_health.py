"""`ops.health`: what the side port tells of metrics."""

from __future__ import annotations

from ops.health import exposition


def test_all_metrics_are_told() -> None:
    told = exposition()
    assert b"fmsg_mcpd_waits_held " in told
    assert b"python_info" in told


def test_single_metrics_can_be_asked_for() -> None:
    told = exposition(["fmsg_mcpd_waits_held"]).decode()
    assert [line.split()[0] for line in told.splitlines() if line[0] != "#"] == ["fmsg_mcpd_waits_held"]
