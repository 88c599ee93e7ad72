"""One thing a standard asks."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["MUST", "SHOULD", "MAY", "item"]
"""BCP 14's words; ``item`` for a point of a checklist."""


class Requirement(msgspec.Struct, frozen=True):
    """``key`` names it, ``section`` says where it stands, ``text`` what it asks, in our words."""

    key: str
    section: str
    level: Level
    text: str
    elsewhere: tuple[str, ...] = ()
    """Node ids of proofs that run on real processes."""
