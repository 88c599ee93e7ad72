"""Files over HTTP: they travel whole, in part and by handle, with the caller's credentials and nobody else's."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import aiohttp
import pytest

from mcp_front.http.files import TRANSFERS_PER_CALLER
from mcp_front.settings import OAuthSettings
from tests.contract.town import Resident, Town, running_town

CONTENT = bytes(range(256)) * 1024
"""Large enough to come in several pieces, and no text."""


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    """Two hosts with a front each."""
    async with running_town() as town:
        yield town


@asynccontextmanager
async def http(who: Resident) -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client with somebody's key."""
    headers = {"Authorization": f"Bearer {who.key}"}
    async with aiohttp.ClientSession(headers=headers, auto_decompress=False) as session:
        yield session


async def received(town: Town, filename: str = "data.bin", content: bytes = CONTENT) -> tuple[Resident, str, str]:
    """Bob, who received a file, and where it is."""
    ann, bob = await town.resident("ann"), await town.resident("bob")
    file = {"filename": filename, "data_base64": base64.b64encode(content).decode(), "content_type": "text/html"}
    message_id = await ann.send(bob, attachments=[file])
    return bob, message_id, f"{town.here.endpoint}/attachments/{message_id}/{quote(filename, safe='')}"


@pytest.mark.parametrize("filename", ["data.bin", "a b%2F?#.bin", "bericht – ä.bin", 'say "hi".bin'])
async def test_a_file_comes_as_it_was_sent_and_is_only_saved(town: Town, filename: str) -> None:
    bob, _, url = await received(town, filename)
    async with http(bob) as session, session.get(url) as answer:
        assert answer.status == 200
        assert await answer.read() == CONTENT
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]
        assert answer.headers["content-disposition"].startswith("attachment; ")
        assert f"filename*=UTF-8''{quote(filename, safe='')}" in answer.headers["content-disposition"]


@pytest.mark.parametrize(
    ("wanted", "status", "start", "end"),
    [
        ("bytes=0-9", 206, 0, 10),
        ("bytes=100000-", 206, 100_000, len(CONTENT)),
        ("bytes=-7", 206, len(CONTENT) - 7, len(CONTENT)),
        (f"bytes=5-{len(CONTENT) * 2}", 206, 5, len(CONTENT)),
        ("bytes=9-5", 200, 0, len(CONTENT)),
        ("bytes=0-1,4-5", 200, 0, len(CONTENT)),
        ("lines=1-2", 200, 0, len(CONTENT)),
    ],
)
async def test_a_part_of_a_file(town: Town, wanted: str, status: int, start: int, end: int) -> None:
    bob, _, url = await received(town)
    async with http(bob) as session, session.get(url, headers={"Range": wanted}) as answer:
        assert answer.status == status
        assert await answer.read() == CONTENT[start:end]
        assert answer.headers["accept-ranges"] == "bytes"
        if status == 206:
            assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{len(CONTENT)}"


@pytest.mark.parametrize("wanted", [f"bytes={len(CONTENT)}-", "bytes=-0"])
async def test_a_part_that_is_not_there(town: Town, wanted: str) -> None:
    bob, _, url = await received(town)
    async with http(bob) as session, session.get(url, headers={"Range": wanted}) as answer:
        assert answer.status == 416
        assert answer.headers["content-range"] == f"bytes */{len(CONTENT)}"


async def test_head_says_how_large_it_is(town: Town) -> None:
    bob, _, url = await received(town)
    async with http(bob) as session, session.head(url) as answer:
        assert answer.status == 200
        assert answer.headers["content-length"] == str(len(CONTENT))


async def test_nobody_else_gets_it(town: Town) -> None:
    bob, message_id, url = await received(town)
    eve = await town.resident("eve")
    async with http(eve) as session, session.get(url) as answer:
        assert answer.status in (403, 404)
        assert CONTENT[:64] not in await answer.read()
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 401
        assert "www-authenticate" in answer.headers
    async with http(bob) as session:
        for path in (f"{message_id}/other.bin", "0/data.bin", "x/data.bin", f"{message_id}/", f"{message_id}/a/b", ""):
            async with session.get(f"{town.here.endpoint}/attachments/{path}") as answer:
                assert answer.status == 404
        async with session.delete(url) as answer:
            assert answer.status == 405
            assert answer.headers["allow"] == "GET, HEAD"


async def test_a_host_that_breaks_off_leaves_no_whole_answer(town: Town) -> None:
    bob, _, url = await received(town)
    town.here.control.fail_next("fetch", status=503, text="later")
    async with http(bob) as session, session.get(url) as answer:
        assert answer.status == 503
        assert answer.headers["retry-after"]
        assert "later" in await answer.text()


async def test_an_upload_travels_by_its_handle(town: Town) -> None:
    ann, bob = await town.resident("ann"), await town.resident("bob", far=True)
    content = os.urandom(3_000_000)

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(content), 50_000):
            yield content[start : start + 50_000]

    async with http(ann) as session, session.put(f"{town.here.endpoint}/uploads", data=pieces()) as answer:
        assert answer.status == 201
        told = await answer.json()
    assert told["size"] == len(content)
    assert told["expires_in"] == 3600
    # It can be sent more than once, and under a name of its own each time.
    for name in ("film.mp4", "again.mp4"):
        await ann.send(bob, attachments=[{"filename": name, "upload": told["upload"]}])
    async with asyncio.timeout(20):
        found = await bob.call("wait_for_message", after_id="0", timeout_seconds=20, settle_seconds=0)
    (message, *_) = found["messages"]
    assert message["attachments"][0]["filename"] == "film.mp4"
    url = f"{town.there.endpoint}/attachments/{message['id']}/film.mp4"
    async with http(bob) as session, session.get(url) as answer:
        assert await answer.read() == content


async def test_an_upload_is_its_owners_alone(town: Town) -> None:
    ann, eve = await town.resident("ann"), await town.resident("eve")
    async with http(ann) as session, session.put(f"{town.here.endpoint}/uploads", data=b"secret plan") as answer:
        handle = (await answer.json())["upload"]
    for handed in (handle, "upload-999999", "upload-x", "7"):
        sent = await eve.call(
            "send_message", to=[eve.address], body="x", attachments=[{"filename": "f", "upload": handed}]
        )
        assert sent.is_error
        assert "no such upload" in sent.text
    assert (await eve.call("list_messages"))["messages"] == []
    # Nor does it show as a message of anybody's.
    assert (await ann.call("list_messages"))["messages"] == []


async def test_an_upload_is_cleaned_up_later_and_a_failed_one_at_once(town: Town) -> None:
    ann = await town.resident("ann")
    town.here.control.fail_next("attach", status=413, text="attachment too large")
    async with http(ann) as session:
        async with session.put(f"{town.here.endpoint}/uploads", data=b"x" * 1000) as answer:
            assert answer.status == 413
            assert "attachment too large" in await answer.text()
        assert not town.here.host.core.state.messages
        async with session.put(f"{town.here.endpoint}/uploads", data=b"x" * 1000) as answer:
            assert answer.status == 201
        async with session.get(f"{town.here.endpoint}/uploads") as answer:
            assert answer.status == 405
    assert await town.here.store.deferred.depth() == 1


async def test_a_client_that_goes_away_leaves_nothing_behind(town: Town) -> None:
    ann = await town.resident("ann")

    async def endless() -> AsyncIterator[bytes]:
        yield b"x" * 100_000
        await asyncio.Event().wait()

    async with http(ann) as session:
        upload = asyncio.create_task(_put(session, f"{town.here.endpoint}/uploads", endless()))
        async with asyncio.timeout(20):
            while not town.here.host.core.state.messages:  # noqa: ASYNC110 - the host has no event for a draft
                await asyncio.sleep(0.02)
        upload.cancel()
        await asyncio.gather(upload, return_exceptions=True)
    async with asyncio.timeout(20):
        while town.here.host.core.state.messages:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)


async def _put(session: aiohttp.ClientSession, url: str, data: AsyncIterator[bytes]) -> None:
    async with session.put(url, data=data) as answer:
        await answer.read()


async def test_a_download_says_where_a_program_gets_the_file() -> None:
    oauth = OAuthSettings(public_url="https://mcp.example.com")
    async with running_town(oauth=oauth) as town:
        bob, message_id, _ = await received(town)
        got = await bob.call("download_attachment", id=message_id, filename="data.bin")
        (link,) = [block for block in got.result.content if block.type == "resource_link"]
        assert str(link.uri) == f"https://mcp.example.com/mcp/attachments/{message_id}/data.bin"
        assert link.size == len(CONTENT)
        refused = await bob.call("download_attachment", id=message_id, filename="data.bin", max_inline_bytes=10)
        assert refused.is_error
        assert str(link.uri) in refused.text


async def test_files_that_nobody_takes_leave_the_others_their_share(town: Town) -> None:
    bob, _, url = await received(town)
    opened = []
    port = int(town.here.endpoint.split(":")[2].partition("/")[0])
    head = f"PUT /mcp/uploads HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {bob.key}\r\n"
    for _ in range(TRANSFERS_PER_CALLER):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{head}content-length: 100000\r\nexpect: 100-continue\r\n\r\n".encode())
        async with asyncio.timeout(10):
            assert b"100 Continue" in await reader.readline()
        opened.append(writer)
    async with http(bob) as session:
        async with session.get(url) as answer:
            assert answer.status == 429
            assert answer.headers["retry-after"]
        assert (await bob.call("whoami"))["address"] == bob.address
        for writer in opened:
            writer.close()
        async with asyncio.timeout(10):
            while True:
                async with session.get(url) as answer:
                    if answer.status == 200:
                        break
