"""What the standards ask, item by item, and the tests that prove it. `conformance_doc` makes a page of it.

A test says what it proves with `proves`; a proof that runs on real processes is named by the requirement itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.contract.requirement import Requirement
from tests.contract.requirements_authorization import AUTHORIZATION
from tests.contract.requirements_first import FIRST_PRINCIPLES
from tests.contract.requirements_fmsg007 import FMSG_007

EVERY: dict[str, Requirement] = {item.key: item for item in (*FMSG_007, *AUTHORIZATION, *FIRST_PRINCIPLES)}
"""By key."""

PROOFS: dict[str, list[str]] = {}
"""Key to node ids of tests, filled by `proves` as test modules are imported."""

_Test = TypeVar("_Test", bound=Callable[..., object])


def proves(*keys: str) -> Callable[[_Test], _Test]:
    """Marks a test as the proof of requirements, by their keys."""
    unknown = [key for key in keys if key not in EVERY]
    if unknown:
        raise LookupError(f"no such requirement: {', '.join(unknown)}")

    def mark(test: _Test) -> _Test:
        node = f"{test.__module__.replace('.', '/')}.py::{test.__qualname__}"
        for key in keys:
            PROOFS.setdefault(key, []).append(node)
        return test

    return mark
