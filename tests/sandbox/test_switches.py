"""Every switch says what it does."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from pathlib import Path

import pytest

from sandbox import switches
from sandbox.switches import PRESETS, Limits, Switches


@pytest.mark.parametrize("kind", [Switches, Limits])
def test_every_field_has_a_docstring(kind: type) -> None:
    tree = ast.parse(Path(inspect.getfile(switches)).read_text(encoding="utf-8"))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    for field, after in pairwise(body):
        if isinstance(field, ast.AnnAssign):
            assert isinstance(after, ast.Expr), ast.unparse(field)
            assert isinstance(after.value, ast.Constant), ast.unparse(field)


def test_the_presets_differ() -> None:
    assert PRESETS["current"] == Switches()
    assert len({str(preset) for preset in PRESETS.values()}) == len(PRESETS)
