"""What pages for people share: one stylesheet, readable on a phone, by keyboard, dark and light; and their headers."""

from __future__ import annotations

from pathlib import Path

STYLE: bytes = (Path(__file__).parent / "style.css").read_bytes()
"""CSS for every page. Pages are served with a policy that allows no inline style, so all of it is here."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""Headers of a page. Nothing inline runs, nothing is loaded from elsewhere, no other site may frame it."""
