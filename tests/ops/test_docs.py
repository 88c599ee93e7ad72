"""The documentation: every variable, command, option, target and link in it exists."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
import yaml

from ops.cli import parser
from ops.connect import CLIENTS
from tests.ops.deploy_files import ROOT, SETTING_NAMES

SKILL = ROOT / "skills" / "fmsg" / "SKILL.md"
PAGES = sorted((*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md"), SKILL))
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")


def code(text: str) -> list[str]:
    """Every line of code on a page: of its blocks, and between backticks."""
    blocks = [line for block in FENCE.findall(text) for line in block.splitlines()[1:-1]]
    return blocks + INLINE.findall(FENCE.sub("", text))


def commands() -> dict[str, frozenset[str]]:
    """Every command with its options."""
    (choices,) = (action.choices for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    return {name: frozenset(command._option_string_actions) for name, command in choices.items()}


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_every_variable_exists(page: Path) -> None:
    named = set(re.findall(r"\bFMSG_[A-Z0-9_]*[A-Z0-9]\b", page.read_text()))
    assert named <= SETTING_NAMES


@every_page
def test_every_command_exists_with_its_options(page: Path) -> None:
    known = commands()
    for line in code(page.read_text()):
        # A namespace, an image and a package may have the name of the command.
        for name, rest in re.findall(r"(?<!-n )(?<!-t )\bfmsg-mcpd ([a-z]+)\b([^|;)]*)", line):
            assert name in known, line
            if "npx" in line:
                continue
            options = set(re.findall(r"(?<!\S)--[a-z-]+", rest.partition("#")[0]))
            assert options <= known[name], line


def test_every_file_on_the_way_from_a_push_to_a_result_exists() -> None:
    """The page for newcomers names files in its picture as well."""
    named = re.findall(r"\b(?:\w+/)+\w+\.py\b", (ROOT / "docs" / "how-it-works.md").read_text())
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


@every_page
def test_every_target_of_make_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for line in code(page.read_text()) for name in re.findall(r"^(?:\$ )?make ([a-z-]+)", line)}
    assert named <= targets


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found), target


@every_page
def test_every_file_named_exists(page: Path) -> None:
    """Paths of this project between backticks, such as `tests/ledger/redis/test_ledger.py`."""
    tops = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))
    for line in INLINE.findall(FENCE.sub("", page.read_text())):
        if re.fullmatch(rf"(?:{tops})/[\w./@-]+", line):
            assert (ROOT / line).exists(), line


def test_the_skill_is_the_page_for_agents() -> None:
    """Two copies of one text: `make skill` writes the second one."""
    heading, _where_else, *rest = (ROOT / "docs" / "agents.md").read_text().split("\n\n")
    skill = SKILL.read_text().partition("\n---\n\n")[2]
    assert skill == "\n\n".join([heading, *rest]), "run `make skill`"


def test_agent_hosts_can_tell_when_to_use_the_skill() -> None:
    """The front matter as the format has it: the folder's name, and a description of at most 1,024 characters."""
    mark, matter, _body = SKILL.read_text().split("---\n", 2)
    front = yaml.safe_load(matter)
    assert mark == ""
    assert set(front) == {"name", "description"}
    assert front["name"] == SKILL.parent.name
    assert 100 < len(front["description"]) <= 1024
    assert not set("<>") & set(front["description"])


def test_the_readme_names_every_agent_host_that_connect_knows() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [name for name in CLIENTS if f"`{name}`" not in readme] == []
