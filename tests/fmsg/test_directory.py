"""Short names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmsg.address import is_address
from fmsg.directory import Directory, Resolved
from fmsg.errors import BadInput
from tests.fmsg.fakehost import KEY


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    """Two entries and a default domain."""
    path = tmp_path / "directory.json"
    path.write_text('{"Bob": "@Bob.Builder@B.test", "@straße": "@s@c.test"}', encoding="utf-8")
    return Directory.load(path, "A.test")


@pytest.mark.parametrize(
    ("name", "address", "resolution"),
    [
        ("@Carol@C.test", "@carol@c.test", "literal"),
        ("bob", "@bob.builder@b.test", "directory"),
        ("@BOB", "@bob.builder@b.test", "directory"),
        (" bob ", "@bob.builder@b.test", "directory"),
        ("STRASSE", "@s@c.test", "directory"),
        ("Dave", "@dave@a.test", "default_domain"),
        ("@dave", "@dave@a.test", "default_domain"),
    ],
)
def test_a_name_is_taken_literally_then_looked_up_then_completed(
    directory: Directory, name: str, address: str, resolution: str
) -> None:
    resolved = directory.resolve(name, argument="to")
    assert (resolved.address, resolved.resolution) == (address, resolution)


@pytest.mark.parametrize("name", ["", "@", "dave@a.test", "@@a.test", "da ve", "@dave@", 7, None])
def test_what_is_neither_name_nor_address_is_refused(directory: Directory, name: object) -> None:
    with pytest.raises(BadInput, match=r"^from: "):
        directory.resolve(name, argument="from")


def test_without_entries_and_domain_only_addresses_resolve() -> None:
    nothing = Directory.load(None, None)
    assert nothing.resolve("@a@b.test", argument="to") == Resolved(address="@a@b.test", resolution="literal")
    with pytest.raises(
        BadInput, match=r"^to: .alice. is a short name that nothing here resolves\. Write the full address"
    ):
        nothing.resolve("alice", argument="to")
    assert len(nothing) == 0


def test_an_empty_setting_is_no_setting() -> None:
    assert len(Directory.load("", "")) == 0


def test_a_directory_without_default_domain_names_the_unknown_one(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text('{"bob": "@bob@b.test"}')
    directory = Directory.load(path)
    assert len(directory) == 1
    with pytest.raises(BadInput, match="'carol' is a short name"):
        directory.resolve("carol", argument="to")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[]", "not a JSON object"),
        ('{"bob": 1}', "not a JSON object"),
        ('{"bob": null}', "not a JSON object"),
        ("{", "not a JSON object"),
        ("", "not a JSON object"),
        ('{"bob": "bob@b.test"}', "'bob': 'bob@b.test' is not an fmsg address"),
        ('{"bob": "carol"}', "'bob': 'carol' is not an fmsg address"),
        ('{"": "@bob@b.test"}', "'' is no short name"),
        ('{"@": "@bob@b.test"}', "'@' is no short name"),
        ('{"bob@b.test": "@bob@b.test"}', "'bob@b.test' is no short name"),
        ('{"bob": "@bob@b.test", "BOB": "@bob@c.test"}', "there twice with different addresses"),
    ],
)
def test_a_faulty_file_is_refused_with_its_name_and_the_reason(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "names.json"
    path.write_text(content)
    with pytest.raises(BadInput, match=r"^FMSG_DIRECTORY .*names\.json") as caught:
        Directory.load(path)
    assert reason in str(caught.value)


def test_the_same_name_twice_with_one_address_is_harmless(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text('{"bob": "@bob@b.test", "@Bob": "@BOB@b.test"}')
    assert len(Directory.load(path)) == 1


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(BadInput, match=r"^FMSG_DIRECTORY .*cannot be read"):
            Directory.load(path)


@pytest.mark.parametrize("domain", ["a b", "@a@b", "a..b", "-a.test", "a/b", " "])
def test_a_faulty_default_domain_is_refused(domain: str) -> None:
    with pytest.raises(BadInput, match=r"^FMSG_DEFAULT_DOMAIN: .* is not a domain"):
        Directory.load(None, domain)


def test_a_key_given_as_a_name_is_not_shown() -> None:
    with pytest.raises(BadInput) as caught:
        Directory().resolve(KEY, argument="to")
    assert "5dQ1kZ" not in str(caught.value)


@given(st.text(max_size=40))
def test_whatever_resolves_is_a_full_address_in_lower_case(name: str) -> None:
    directory = Directory({"bob": "@bob@b.test"}, default_domain="a.test")
    try:
        resolved = directory.resolve(name, argument="to")
    except BadInput:
        return
    assert is_address(resolved.address)
    assert resolved.address == resolved.address.lower()


def test_a_name_is_found_in_every_unicode_form() -> None:
    directory = Directory({"José": "@jose@a.test"})
    assert directory.resolve("jose\u0301", argument="to").address == "@jose@a.test"


def test_the_default_domain_may_be_the_callers() -> None:
    directory = Directory.load(None, "caller")
    with pytest.raises(BadInput, match="nothing here resolves"):
        directory.resolve("bob", argument="to")
    assert directory.for_caller("@ann@b.test").resolve("bob", argument="to").address == "@bob@b.test"
    assert directory.for_caller("@ann@c.test").resolve("bob", argument="to").address == "@bob@c.test"
    fixed = Directory({"bob": "@bob@z.test"}, default_domain="a.test").for_caller("@ann@b.test")
    assert fixed.resolve("bob", argument="to").address == "@bob@z.test"
    assert fixed.resolve("eve", argument="to").address == "@eve@a.test"
