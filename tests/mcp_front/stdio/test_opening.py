from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from mcp_front.stdio.file_descriptors import ClientDescriptors
from mcp_front.stdio.opening import HANDSHAKE_VERSIONS, MAX_READ_BYTES, NEWEST_VERSION, PREPARED, Opening, Prepared
from mcp_front.stdio.opening import Request as Line
from tests.mcp_front.fakes import request
from tests.mcp_front.stdio.prepare import DIRECTORIES, LISTS, by_the_sdk, initialize, prepared, questions
from tests.mcp_front.stdio.test_serve import META, session

LIST = request("tools/list", id_=4)


def answer(own: Prepared, message: object) -> bytes | None:
    return own.answer(msgspec.json.decode(json.dumps(message), type=Line))


@pytest.mark.parametrize(
    ("version", "directories"), [*itertools.product((*HANDSHAKE_VERSIONS, NEWEST_VERSION), DIRECTORIES)]
)
async def test_every_byte_is_what_the_sdk_answers(version: str, directories: tuple[bool, bool]) -> None:
    uploads, downloads = directories
    by_it = await by_the_sdk(version, uploads=uploads, downloads=downloads, product="9.8.7")
    own = Prepared(version="9.8.7", uploads=uploads, downloads=downloads)
    assert {question["method"]: answer(own, question) for question in questions(version)} == by_it


async def test_what_is_prepared_is_what_the_program_writes() -> None:
    """If not: ``python -m tests.mcp_front.stdio.prepare``."""
    assert PREPARED.read_bytes() == await prepared()


@pytest.mark.parametrize("version", ["2026-07-28", "1999-01-01", ""])
async def test_an_unknown_version_gets_the_last_that_has_initialize(version: str) -> None:
    message = initialize(version, capabilities={"roots": {"listChanged": True}, "sampling": {}})
    async with session(api_key=None) as client:
        await client.say(message)
        assert await client.lines.next() == answer(Prepared(version="1.2.3"), message)


def test_it_knows_the_versions_the_sdk_knows() -> None:
    assert HANDSHAKE_VERSIONS == HANDSHAKE_PROTOCOL_VERSIONS
    assert (NEWEST_VERSION,) == MODERN_PROTOCOL_VERSIONS


@pytest.mark.parametrize("method", LISTS)
def test_nothing_is_listed_before_initialize_where_the_era_has_it(method: str) -> None:
    own = Prepared(version="1")
    assert answer(own, request(method)) is None
    assert answer(own, request(method, {"_meta": {}})) is None
    answer(own, initialize())
    assert answer(own, request(method)) is not None
    assert answer(own, request(method, {"_meta": {"progressToken": 5}})) is not None


@pytest.mark.parametrize(
    "message",
    [
        request("initialize"),
        request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}}),
        initialize(capabilities=None),
        initialize(clientInfo={"name": "t"}),
        request("server/discover", {"_meta": {**META, "io.modelcontextprotocol/protocolVersion": "2030-01-01"}}),
        request("server/discover", {"_meta": {**META, "io.modelcontextprotocol/clientCapabilities": {"roots": 1}}}),
        request("tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}),
        request("tools/list", {"_meta": {**META, "more": 1}}),
        request("tools/list", {"_meta": META, "cursor": "x"}),
        request("tools/call", {"_meta": META, "name": "whoami"}),
    ],
)
def test_anything_else_is_left_to_the_sdk(message: object) -> None:
    assert answer(Prepared(version="1"), message) is None


@pytest.mark.parametrize(
    "params", [{"cursor": "x"}, {"_meta": META}, {"_meta": {"progressToken": True}}, {"_meta": None}, None, []]
)
def test_a_list_with_more_than_that_is_left_to_the_sdk(params: object) -> None:
    own = Prepared(version="1")
    answer(own, initialize())
    assert answer(own, {**LIST, "params": params}) is None


@pytest.fixture
def pipes() -> Iterator[tuple[ClientDescriptors, int, int]]:
    (read_fd, to_server), (from_server, write_fd) = os.pipe(), os.pipe()
    yield ClientDescriptors(read_fd, write_fd), to_server, from_server
    for fd in (read_fd, write_fd, to_server, from_server):
        try:
            os.close(fd)
        except OSError:
            continue


def opening(descriptors: ClientDescriptors) -> Opening:
    return Opening(descriptors, Prepared(version="1"))


def heard(from_server: int, count: int) -> list[Any]:
    """So many lines of the server."""
    data = b""
    while data.count(b"\n") < count:
        data += os.read(from_server, 65536)
    return [json.loads(line) for line in data.splitlines()]


def left(descriptors: ClientDescriptors, to_server: int, data: bytes) -> bytes:
    """What the session reads: what was handed to it, and what is still in the pipe."""
    os.close(to_server)
    while piece := os.read(descriptors.read_fd, 65536):
        data += piece
    return data


def lines(*messages: object) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
CALL = request("tools/call", {"name": "whoami"}, id_=5)


def test_it_answers_up_to_a_call_and_hands_on_what_the_session_needs(pipes: tuple[ClientDescriptors, int, int]) -> None:
    descriptors, to_server, from_server = pipes
    early = opening(descriptors)
    early.start()
    begin = lines(initialize())
    os.write(to_server, begin[:20])
    os.write(to_server, begin[20:] + lines(INITIALIZED, LIST))
    assert [told["id"] for told in heard(from_server, 2)] == [3, 4]
    os.write(to_server, lines(CALL, LIST) + b'{"next"')
    already_read = early.finish()
    assert already_read.request_id == 3
    # A list asked for behind the call may be answered by the session only, in its turn.
    assert left(descriptors, to_server, already_read.data) == lines(initialize(), INITIALIZED, CALL, LIST) + b'{"next"'


def test_the_first_request_of_the_newest_era_reaches_the_session_and_the_second_does_not(
    pipes: tuple[ClientDescriptors, int, int],
) -> None:
    descriptors, to_server, from_server = pipes
    early = opening(descriptors)
    early.start()
    discover, listing = (request(method, {"_meta": META}, id_=method) for method in ("server/discover", "tools/list"))
    os.write(to_server, lines(discover, listing))
    assert [told["id"] for told in heard(from_server, 2)] == ["server/discover", "tools/list"]
    already_read = early.finish()
    assert already_read.request_id == "server/discover"
    assert left(descriptors, to_server, already_read.data) == lines(discover)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"half a line",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
        b"{no json\n" + lines(initialize()),
        lines([initialize()], initialize()),
        lines({**initialize(), "jsonrpc": "1.0"}, initialize()),
        lines({**initialize(), "id": True}, initialize()),
        lines({**initialize(), "id": None}, LIST),
        lines(LIST, initialize()),
        b"x" * MAX_READ_BYTES,
    ],
)
def test_what_it_does_not_answer_is_not_lost(pipes: tuple[ClientDescriptors, int, int], said: bytes) -> None:
    descriptors, to_server, _ = pipes
    early = opening(descriptors)
    os.write(to_server, said)
    early.start()
    already_read = early.finish()
    assert already_read.request_id is None
    assert left(descriptors, to_server, already_read.data) == said


def test_a_client_that_has_gone_is_left_to_the_session(pipes: tuple[ClientDescriptors, int, int]) -> None:
    descriptors, to_server, from_server = pipes
    os.close(from_server)
    os.write(to_server, lines(initialize()))
    os.close(to_server)
    early = opening(descriptors)
    early.start()
    assert early.finish().data in (b"", lines(initialize()))


def test_an_opening_that_was_never_started_has_read_nothing(pipes: tuple[ClientDescriptors, int, int]) -> None:
    assert opening(pipes[0]).finish().data == b""
