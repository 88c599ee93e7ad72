"""Writes `docs/conformance.md`: ``python -m tests.contract.conformance_doc``."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.contract.requirement import Requirement
from tests.contract.requirements import EVERY, PROOFS
from tests.contract.requirements_authorization import AUTHORIZATION
from tests.contract.requirements_first import FIRST_PRINCIPLES
from tests.contract.requirements_fmsg007 import FMSG_007

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conformance.md"

_MODULES = sorted(
    path.stem for pattern in ("test_fmsg007_*.py", "test_first_*.py") for path in Path(__file__).parent.glob(pattern)
)

_INTRO = """# Conformance

Made by `python -m tests.contract.conformance_doc` from the tests that prove it; a test fails when this page and they
differ. A row is *kept* when its tests are there, and they run with every `make test`. The wording is ours, not the
standards'.
"""


def page() -> str:
    """The whole page."""
    for module in _MODULES:
        importlib.import_module(f"tests.contract.{module}")
    kept = sum(bool(proofs(item)) for item in EVERY.values())
    return "\n".join(
        [
            _INTRO,
            f"{kept} of {len(EVERY)} rows are kept.\n",
            "## FMSG-007 v0.1.0, MCP Binding\n",
            *_table(FMSG_007),
            "\nRevisions and what else the standard leaves to the future or to others has no row.\n",
            "## MCP authorization\n",
            "Where `FMSG_MCP_PUBLIC_URL` is set. `make conformance` also plays the official runner's scenarios for "
            "authorization servers.\n",
            *_table(AUTHORIZATION),
            "",
            '## "Model Context Protocol from First Principles"\n',
            *_table(FIRST_PRINCIPLES),
            "",
        ]
    )


def proofs(item: Requirement) -> tuple[str, ...]:
    """The node ids of the tests that prove it."""
    return (*sorted(PROOFS.get(item.key, ())), *item.elsewhere)


def exists(node: str) -> bool:
    """Whether there is such a test."""
    path, _, name = node.partition("::")
    file = ROOT / path
    return file.exists() and name in set(_functions(ast.parse(file.read_text()).body))


def _functions(body: Iterable[ast.stmt], prefix: str = "") -> Iterable[str]:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + statement.name
        elif isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body, f"{prefix}{statement.name}::")


def _table(items: Sequence[Requirement]) -> Iterable[str]:
    yield "| Section | Level | What is asked | State | Proof |"
    yield "|---|---|---|---|---|"
    for item in items:
        found = proofs(item)
        state = "kept" if found else "**unproven**"
        yield f"| {item.section} | {item.level} | {item.text} | {state} | {'<br>'.join(map(_link, found))} |"


def _link(node: str) -> str:
    path, _, name = node.partition("::")
    return f"[{name.replace('_', ' ').removeprefix('test ')}](../{path})"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
