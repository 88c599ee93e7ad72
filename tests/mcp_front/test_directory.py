"""Short names: literal first, then the directory, then the default domain."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmsg.errors import BadInput
from mcp_front.directory import Directory, Resolution


@pytest.fixture
def directory() -> Directory:
    return Directory({"Bob": "@Bob@Example.net", "@ann": "@ann@there.test"}, default_domain="here.test")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("@Carol@Example.com", Resolution("@carol@example.com", "literal")),
        ("bob", Resolution("@bob@example.net", "directory")),
        ("BOB", Resolution("@bob@example.net", "directory")),
        ("@bob", Resolution("@bob@example.net", "directory")),
        (" ann ", Resolution("@ann@there.test", "directory")),
        ("dave", Resolution("@dave@here.test", "default_domain")),
        ("@Dave", Resolution("@dave@here.test", "default_domain")),
    ],
)
def test_resolves(directory: Directory, name: str, expected: Resolution) -> None:
    assert directory.resolve(name) == expected


@pytest.mark.parametrize("name", ["", " ", "@", "bob@example.com", "@a@b@c", "no spaces", "@@x", "a..b"])
def test_refuses_what_is_no_name_and_names_the_argument(directory: Directory, name: str) -> None:
    with pytest.raises(BadInput, match=r"^to\[1\]: "):
        directory.resolve(name, argument="to[1]")


def test_a_short_name_without_directory_and_default_domain_is_refused_with_the_next_step() -> None:
    with pytest.raises(BadInput, match="@user@domain"):
        Directory().resolve("bob")


def test_an_email_address_is_refused_with_the_address_that_may_be_meant(directory: Directory) -> None:
    with pytest.raises(BadInput, match=r"@bob@example\.com"):
        directory.resolve("bob@example.com")


def test_loads_a_file(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    path.write_text('{"bob": "@bob@example.net"}')
    assert Directory.load(path).resolve("bob").address == "@bob@example.net"
    assert Directory.load(None, default_domain="@x.test").resolve("b").address == "@b@x.test"


@pytest.mark.parametrize("content", ["[]", "{", '{"bob": 1}', '{"bob": "bob"}'])
def test_a_broken_file_is_told_by_the_name_of_its_variable_or_entry(tmp_path: Path, content: str) -> None:
    path = tmp_path / "names.json"
    path.write_text(content)
    with pytest.raises(BadInput, match=r"FMSG_DIRECTORY|directory entry 'bob'"):
        Directory.load(path)


def test_a_missing_file_and_a_huge_one_are_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        Directory.load(tmp_path / "missing.json")
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    with pytest.raises(BadInput, match="larger than"):
        Directory.load(huge)


def test_a_default_domain_that_is_none_is_told() -> None:
    with pytest.raises(BadInput, match="FMSG_DEFAULT_DOMAIN"):
        Directory(default_domain="not a domain")
