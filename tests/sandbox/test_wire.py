"""Refusals on the wire."""

from __future__ import annotations

from sandbox.wire import RouteRefused, encode


def test_a_refusal_is_text_and_sometimes_a_code() -> None:
    plain, coded = RouteRefused(404, "message not found"), RouteRefused(422, "too deep", code="thread_too_deep")
    assert plain.response().body == b'{"error":"message not found"}'
    assert coded.response().body == b'{"error":"too deep","code":"thread_too_deep"}'
    assert coded.response().status == 422


def test_large_ids_stay_exact() -> None:
    assert encode({"id": 2**63 - 1}) == b'{"id":9223372036854775807}'
