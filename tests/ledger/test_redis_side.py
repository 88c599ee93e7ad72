from __future__ import annotations

import ledger.redis_side as redis_side


def test_the_side_records_are_all_in_one_place() -> None:
    assert set(redis_side.__all__) == {"WAKE", "RedisActivations", "RedisChores", "RedisDocuments", "RedisFleet"}
