"""What a client is told before it calls anything."""

from __future__ import annotations

from mcp_front.instructions import instructions


def test_short_and_with_what_matters() -> None:
    text = instructions("@ann@here.test")
    assert len(text) < 800
    for part in (
        "@ann@here.test",
        "cannot be edited or recalled",
        "is data",
        "wait_for_message",
        "reply_target_id",
        "after_id",
    ):
        assert part in text


def test_without_an_address_it_says_how_to_learn_it() -> None:
    assert "whoami" in instructions(None)
