from __future__ import annotations

import pytest

from ledger.catch_up import SNAPSHOT_ENTRIES
from ledger.values import LedgerLimits


def test_the_defaults_are_sane() -> None:
    limits = LedgerLimits()
    assert limits.max_entries > SNAPSHOT_ENTRIES
    assert limits.returned_ttl_s < limits.ttl_s


@pytest.mark.parametrize(("field", "value"), [("max_entries", 0), ("max_gone", -1)])
def test_limits_nobody_can_keep_are_refused(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=field):
        LedgerLimits(**{field: value})
