"""What pages for people share: one stylesheet, readable on a phone, by keyboard, dark and light."""

from __future__ import annotations

from pathlib import Path

STYLE: bytes = (Path(__file__).parent / "style.css").read_bytes()
"""CSS for every page. Pages are served with a policy that allows no inline style, so all of it is here."""
