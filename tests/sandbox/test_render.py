"""Small parts of rendering; whole messages are in `test_routes_read`."""

from __future__ import annotations

import pytest

from sandbox.render import is_text, rfc3339


@pytest.mark.parametrize(
    ("media_type", "text"),
    [
        ("text/plain", True),
        ("Text/Markdown; charset=utf-8", True),
        ("application/json;x=y", True),
        ("application/ld+json", True),
        ("application/octet-stream", False),
        ("image/png", False),
    ],
)
def test_what_is_text(media_type: str, text: bool) -> None:
    assert is_text(media_type) is text


def test_times_are_rfc_3339_in_utc() -> None:
    assert rfc3339(1_780_000_000.25) == "2026-05-28T20:26:40.250000Z"
