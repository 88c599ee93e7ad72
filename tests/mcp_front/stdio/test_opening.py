from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from mcp_front.settings import FrontSettings
from mcp_front.stdio.early_initialize import HANDSHAKE_VERSIONS, MAX_LINE_BYTES, EarlyInitialize, early_answer
from mcp_front.stdio.file_descriptors import ClientDescriptors
from mcp_front.tools.registry import tools_for
from tests.mcp_front.fakes import request
from tests.mcp_front.stdio.test_serve import session


def initialize(version: str = "2025-06-18", **more: Any) -> dict[str, Any]:
    client = {"name": "t", "version": "1", "title": "a client"}
    return request("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": client, **more}, id_=3)


@pytest.mark.parametrize("version", [*HANDSHAKE_PROTOCOL_VERSIONS, "2026-07-28", "1999-01-01", ""])
async def test_it_is_what_the_sdk_answers(version: str) -> None:
    message = initialize(version, capabilities={"roots": {"listChanged": True}, "sampling": {}})
    async with session(api_key=None, tools=tools_for(FrontSettings(transport="stdio"))) as client:
        by_the_sdk = await client.ask(message)
    told = early_answer(json.dumps(message).encode(), version="1.2.3")
    assert told is not None
    assert (told[0], json.loads(told[1])) == (3, by_the_sdk)


def test_it_knows_the_versions_the_sdk_knows() -> None:
    assert HANDSHAKE_VERSIONS == HANDSHAKE_PROTOCOL_VERSIONS


@pytest.mark.parametrize(
    "message",
    [
        request("tools/list"),
        request("initialize"),
        request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}}),
        {**initialize(), "jsonrpc": "1.0"},
        {**initialize(), "id": True},
        {**initialize(), "id": None},
        initialize(capabilities=None),
        initialize(clientInfo={"name": "t"}),
        [initialize()],
        {"jsonrpc": "2.0", "method": "initialize"},
    ],
)
def test_anything_else_is_left_to_the_sdk(message: object) -> None:
    assert early_answer(json.dumps(message).encode(), version="1") is None
    assert early_answer(b"no json", version="1") is None


@pytest.fixture
def pipes() -> Iterator[tuple[ClientDescriptors, int, int]]:
    (read_fd, to_server), (from_server, write_fd) = os.pipe(), os.pipe()
    yield ClientDescriptors(read_fd, write_fd), to_server, from_server
    for fd in (read_fd, write_fd, to_server, from_server):
        try:
            os.close(fd)
        except OSError:
            continue


def test_the_greeter_answers_and_hands_on_what_it_read(pipes: tuple[ClientDescriptors, int, int]) -> None:
    descriptors, to_server, from_server = pipes
    line = json.dumps(initialize()).encode() + b"\n"
    early = EarlyInitialize(descriptors, version="1")
    early.start()
    os.write(to_server, line[:20])
    os.write(to_server, line[20:] + b'{"next"')
    answer = json.loads(os.read(from_server, 65536))
    assert answer["id"] == 3
    already_read = early.finish()
    assert already_read.request_id == 3
    rest = b"" if len(already_read.data) > len(line) else os.read(descriptors.read_fd, 100)
    assert already_read.data + rest == line + b'{"next"'


@pytest.mark.parametrize(
    "said", [b"", b"half a line", b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n', b"x" * MAX_LINE_BYTES]
)
def test_what_it_does_not_answer_is_not_lost(pipes: tuple[ClientDescriptors, int, int], said: bytes) -> None:
    descriptors, to_server, _ = pipes
    early = EarlyInitialize(descriptors, version="1")
    os.write(to_server, said)
    early.start()
    already_read = early.finish()
    assert already_read.request_id is None
    os.close(to_server)
    rest = b""
    while piece := os.read(descriptors.read_fd, 65536):
        rest += piece
    assert already_read.data + rest == said


def test_a_client_that_has_gone_is_left_to_the_session(pipes: tuple[ClientDescriptors, int, int]) -> None:
    descriptors, to_server, from_server = pipes
    os.close(from_server)
    os.write(to_server, json.dumps(initialize()).encode() + b"\n")
    os.close(to_server)
    early = EarlyInitialize(descriptors, version="1")
    early.start()
    assert early.finish().data in (b"", json.dumps(initialize()).encode() + b"\n")


def test_a_greeter_that_was_never_started_has_read_nothing(pipes: tuple[ClientDescriptors, int, int]) -> None:
    assert EarlyInitialize(pipes[0], version="1").finish().data == b""
