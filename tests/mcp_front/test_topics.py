"""Topics remembered per caller, within bounds."""

from __future__ import annotations

from ledger.values import CallerKey
from mcp_front.topics import Topics


def test_a_topic_is_the_callers_own() -> None:
    topics = Topics()
    topics.put(CallerKey("one"), 5, "secret")
    assert topics.get(CallerKey("one"), 5) == "secret"
    assert topics.get(CallerKey("two"), 5) is None
    assert topics.get(CallerKey("one"), 6) is None


def test_the_least_recently_used_is_forgotten() -> None:
    topics = Topics(most=2)
    key = CallerKey("one")
    topics.put(key, 1, "a")
    topics.put(key, 2, "b")
    assert topics.get(key, 1) == "a"
    topics.put(key, 3, "c")
    assert [topics.get(key, n) for n in (1, 2, 3)] == ["a", None, "c"]
