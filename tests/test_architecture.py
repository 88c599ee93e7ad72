"""The house as ARCHITECTURE.md draws it: who may import whom, and how large a room may be."""

from __future__ import annotations

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent

ALLOWED: dict[str, frozenset[str]] = {
    "fmsg": frozenset(),
    "pages": frozenset(),
    "telemetry": frozenset({"fmsg"}),
    "ledger": frozenset({"fmsg", "telemetry"}),
    "daemon": frozenset({"fmsg", "telemetry", "ledger"}),
    "workers": frozenset({"fmsg", "telemetry", "ledger"}),
    "mcp_front": frozenset({"fmsg", "telemetry", "ledger", "pages"}),
    "sandbox": frozenset({"fmsg", "pages"}),
    "fmsg_mcpd": frozenset({"ops"}),
    "ops": frozenset({"fmsg", "telemetry", "ledger", "daemon", "workers", "mcp_front", "sandbox", "pages"}),
}
"""Package → packages of ours it may import besides itself."""

LONGEST_MODULE_LINES = 600
"""At this length a reader asks whether the module holds two concepts. `ONE_CONCEPT` has the answers."""

ONE_CONCEPT = {
    "ledger/memory.py": "the whole store of one process: every port in memory, read side by side with `ledger.port`",
    "ledger/redis/ledger.py": "one ledger in Redis: its scripts are the atomic steps of its methods",
}
"""Longer modules, each with why it is not two."""

TWO_ENDS = {
    "Event": "a socket's frame as the client reads it, and as the sandbox host writes it",
    "Reacted": "the answer of the route `react`, read by the client and written by the sandbox host",
}
"""Class names that stand for two things, each with why. At most six: a reader learns a name once."""

MODULES = sorted(path for package in ALLOWED for path in (ROOT / package).rglob("*.py"))


def imported_packages(path: pathlib.Path) -> set[str]:
    """The top-level names that a module imports, wherever in it the import stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: pathlib.Path) -> None:
    """A module imports only the packages its own may know."""
    package = path.relative_to(ROOT).parts[0]
    ours = imported_packages(path) & ALLOWED.keys() - {package}
    assert ours <= ALLOWED[package], f"{package} must not import {sorted(ours - ALLOWED[package])}"
    assert "tests" not in imported_packages(path)


def test_the_protocol_package_knows_neither_redis_nor_mcp() -> None:
    """`fmsg` could be a library of its own."""
    for path in (ROOT / "fmsg").rglob("*.py"):
        assert not imported_packages(path) & {"redis", "mcp", "mcp_types", "arq", "prometheus_client"}, path


def test_the_ledger_knows_neither_mcp_nor_websockets() -> None:
    """`ledger` has no idea how messages come in or go out."""
    for path in (ROOT / "ledger").rglob("*.py"):
        assert not imported_packages(path) & {"mcp", "mcp_types", "aiohttp", "arq"}, path


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_stay_small(path: pathlib.Path) -> None:
    """A reader can hold one module in mind, or is told why it is long."""
    lines = path.read_text().count("\n")
    name = str(path.relative_to(ROOT))
    assert (lines > LONGEST_MODULE_LINES) == (name in ONE_CONCEPT), f"{name} has {lines} lines"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is_for(path: pathlib.Path) -> None:
    """A stranger reads the first line and knows whether this is the room."""
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree) or not tree.body, f"{path.relative_to(ROOT)} has no docstring"


def test_a_class_name_stands_for_one_thing() -> None:
    """A name that is met in two rooms means the same in both, or is listed with its reason."""
    homes: dict[str, set[str]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, set()).add(str(path.relative_to(ROOT)))
    assert {name for name, found in homes.items() if len(found) > 1} == set(TWO_ENDS)
    assert len(TWO_ENDS) <= 6
