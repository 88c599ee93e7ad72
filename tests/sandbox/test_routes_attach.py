"""Attachments (FMSG-003, "Routes"): names that change, names that hang, sizes, who may."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import aiohttp
import pytest

from sandbox.routes_attach import filename_in
from sandbox.switches import Limits, Switches
from tests.sandbox.conftest import Town
from tests.sandbox.people import Person


async def test_upload_and_fetch(alice: Person, bob: Person) -> None:
    number = await alice.draft(bob.address)
    answer = await alice.attach(number, "a b+ü%.txt", b"\0\r\n--x")
    assert (answer.status, answer.json) == (201, {"filename": "a b+ü%.txt", "size": 6})
    await alice.post(f"/{number}/send")
    fetched = await bob.get(f"/{number}/attach/{quote('a b+ü%.txt', safe='')}")
    assert (fetched.body, fetched.headers["Content-Type"]) == (b"\0\r\n--x", "application/octet-stream")
    assert (await bob.message(number))["attachments"] == [{"filename": "a b+ü%.txt", "size": 6}]


async def test_an_upload_by_a_client_library(alice: Person) -> None:
    number = await alice.draft("@bob@a.test")
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("file", b"xyz", filename="zusammenfassung ä.txt", content_type="text/plain")
    answer = await alice.ask("POST", f"/{number}/attach", data=form)
    assert answer.json == {"filename": "zusammenfassung ä.txt", "size": 3}


@pytest.mark.parametrize(("given", "kept"), [("../../etc/passwd", "passwd"), ("/a/b.txt", "b.txt")])
async def test_a_name_comes_back_without_its_folders(alice: Person, given: str, kept: str) -> None:
    number = await alice.draft("@bob@a.test")
    assert (await alice.attach(number, given, b"x")).json["filename"] == kept
    assert (await alice.get(f"/{number}/attach/{kept}")).body == b"x"


@pytest.mark.parametrize("name", [".", "..", "", "a/"])
async def test_a_name_that_is_none(alice: Person, name: str) -> None:
    number = await alice.draft("@bob@a.test")
    answer = await alice.attach(number, name, b"x")
    assert (answer.status, answer.error) == (400, "invalid filename")


async def test_the_same_name_replaces(alice: Person) -> None:
    number = await alice.draft("@bob@a.test")
    await alice.attach(number, "a.txt", b"one")
    await alice.attach(number, "a.txt", b"three")
    assert (await alice.message(number))["attachments"] == [{"filename": "a.txt", "size": 5}]


async def test_a_name_with_a_backslash_is_taken_and_lost(town: Town, alice: Person) -> None:
    number = await alice.draft("@bob@a.test")
    assert (await alice.attach(number, r"a\b.txt", b"x")).json["filename"] == r"a\b.txt"
    answer = await alice.get(f"/{number}/attach/{quote(chr(92).join(('a', 'b.txt')), safe='')}")
    assert (answer.status, answer.error) == (404, "attachment not found")
    await town.host("b.test", switches=Switches(backslash_names_lost=False))
    carol = await town.person("@carol@b.test")
    number = await carol.draft("@bob@b.test")
    await carol.attach(number, r"a\b.txt", b"x")
    assert (await carol.get(f"/{number}/attach/a%5Cb.txt")).body == b"x"


async def test_a_name_over_255_bytes_hangs(alice: Person) -> None:
    number = await alice.draft("@bob@a.test")
    hanging = asyncio.ensure_future(alice.attach(number, "ü" * 128, b"x"))
    await alice.asked("attach")
    assert (await alice.get()).status == 200
    assert not hanging.done()
    alice.host.control.release()
    assert (await hanging).status == 400


async def test_or_is_refused(town: Town) -> None:
    await town.host(switches=Switches(long_names_hang=False))
    alice = await town.person("@alice@a.test")
    number = await alice.draft("@bob@a.test")
    assert (await alice.attach(number, "x" * 256, b"x")).status == 400
    assert (await alice.attach(number, "x" * 255, b"x")).status == 201


async def test_sizes_that_are_too_large(town: Town) -> None:
    await town.host(limits=Limits(attachment_bytes=4, message_bytes=11))
    alice = await town.person("@alice@a.test")
    number = await alice.draft("@bob@a.test")
    answer = await alice.attach(number, "a", b"12345")
    assert (answer.status, answer.error) == (413, "attachment too large")
    assert (await alice.attach(number, "a", b"1234")).status == 201
    answer = await alice.attach(number, "b", b"1234")
    assert (answer.status, answer.error) == (413, "message too large")
    assert (await alice.attach(number, "a", b"4321")).status == 201


async def test_an_attachment_of_exactly_ten_mebibytes_is_taken(alice: Person, bob: Person) -> None:
    number = await alice.draft(bob.address)
    limit = 10 * 1024 * 1024
    assert (await alice.attach(number, "a", bytes(limit))).json == {"filename": "a", "size": limit}
    assert (await alice.attach(number, "b", bytes(limit + 1))).status == 413


async def test_only_the_owner_of_a_draft_attaches(alice: Person, bob: Person) -> None:
    number = await alice.draft(bob.address)
    assert (await bob.attach(number, "a", b"x")).status == 403
    await alice.post(f"/{number}/send")
    assert (await alice.attach(number, "a", b"x")).status == 403


async def test_an_upload_without_a_file(alice: Person) -> None:
    number = await alice.draft("@bob@a.test")
    assert (await alice.post(f"/{number}/attach", {})).error == "file is required"
    form = aiohttp.FormData({"other": "x"}, default_to_multipart=True)
    assert (await alice.ask("POST", f"/{number}/attach", data=form)).error == "file is required"
    headers = {"Content-Type": "multipart/form-data"}
    assert (await alice.ask("POST", f"/{number}/attach", data=b"x", headers=headers)).status == 400


async def test_deleting_an_attachment(alice: Person, bob: Person) -> None:
    number = await alice.draft(bob.address)
    await alice.attach(number, "a", b"x")
    assert (await bob.ask("DELETE", f"/{number}/attach/a")).status == 403
    assert (await alice.ask("DELETE", f"/{number}/attach/a")).status == 204
    assert (await alice.ask("DELETE", f"/{number}/attach/a")).status == 404
    assert (await alice.message(number))["attachments"] is None


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ('form-data; name="file"; filename="a.txt"', "a.txt"),
        (r'form-data; name="file"; filename="a\"b\\c\d"', r"a\"b\c\d".replace(r"\"", '"')),
        ('form-data; name="file"; filename="a%22b%20c"', "a%22b%20c"),
        ('form-data; name="file"; filename="100%"', "100%"),
        ("form-data; name=file; filename=a.txt", "a.txt"),
        ("form-data; name=file; filename*=utf-8''%C3%A4.txt", "ä.txt"),
        ("form-data; name=file; filename=x; filename*=UTF-8''%C3%A4", "ä"),
        ("form-data; name=file", ""),
    ],
)
def test_names_in_a_content_disposition(disposition: str, name: str) -> None:
    assert filename_in(disposition) == name
