"""Settings that cannot work are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.settings import DaemonSettings


def test_the_defaults_hold() -> None:
    assert DaemonSettings().heartbeat_s < DaemonSettings().heartbeat_ttl_s


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("heartbeat_s", 9.0),
        ("max_connecting", 0),
        ("max_listing", -1),
        ("connects_per_s", 0.0),
        ("lists_per_s", 0.0),
        ("pending_limit", 0),
        ("scan_s", 0.0),
    ],
)
def test_what_cannot_work_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{field}: {value}"):
        DaemonSettings(**{field: value})
