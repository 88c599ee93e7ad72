"""The checklists of "Model Context Protocol from First Principles", item by item, against real servers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mcp_front.settings import HttpSettings
from tests.contract.requirements import proves
from tests.contract.test_fmsg007_profiles import INITIALIZE, piped
from tests.contract.town import Resident, Town, raw, request, running_town

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    async with running_town() as running:
        yield running


@pytest.fixture
async def ann(town: Town) -> Resident:
    return await town.resident("ann")


async def post(
    town: Town, key: str | None, message: Any, **headers: str
) -> tuple[int, dict[str, Any] | None, aiohttp.ClientResponse]:
    """Status, JSON body if there is one, and the response."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with raw(key) as http, http.post(town.here.endpoint, json=message, headers=named) as answer:
        text = await answer.text()
        return answer.status, (await answer.json()) if text.startswith("{") else None, answer


@proves("first.initialization")
async def test_over_stdio_nothing_is_done_before_initialize() -> None:
    async with piped() as pipe:
        early = await pipe.ask("tools/list", id_=1)
        assert "error" in early
        await pipe.begin()
        assert "result" in await pipe.ask("tools/list", id_=2)


@proves("first.version")
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_a_version_both_know_is_agreed_on(version: str) -> None:
    async with piped() as pipe:
        answer = await pipe.ask("initialize", {**INITIALIZE, "protocolVersion": version})
        assert answer["result"]["protocolVersion"] == version


@proves("first.version")
async def test_an_unknown_version_is_answered_with_a_known_one_and_refused_in_a_header(
    town: Town, ann: Resident
) -> None:
    async with piped() as pipe:
        answer = await pipe.ask("initialize", {**INITIALIZE, "protocolVersion": "1999-01-01"})
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", answer["result"]["protocolVersion"])
        assert answer["result"]["protocolVersion"] != "1999-01-01"
    status, _, _ = await post(town, ann.key, request("tools/list", {}), MCP_Protocol_Version="1999-01-01")
    assert status == 400


@proves("first.correlation")
async def test_answers_carry_the_id_of_their_request_whatever_it_is(town: Town, ann: Resident) -> None:
    cat = await town.resident("cat")
    ids = [1, 0, -5, "abc", "", "1", 2**53, "fmsgk_not_a_key"]
    body = [request("tools/call", {"name": "whoami", "arguments": {}}, id_=id_) for id_ in ids]
    for resident in (ann, cat):
        answers = await asyncio.gather(*(post(town, resident.key, message) for message in body))
        assert [answer["id"] for _, answer, _ in answers if answer] == ids
        for _, answer, _ in answers:
            assert answer is not None
            assert answer["result"]["structuredContent"]["address"] == resident.address
    status, _, _ = await post(town, None, request("tools/list", {}, id_="a known id"))
    assert status == 401, "an id gives no authority"


@proves("first.notifications")
async def test_a_notification_is_not_answered_and_with_an_id_it_is_none(town: Town, ann: Resident) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
    status, answer, _ = await post(town, ann.key, note)
    assert (status, answer) == (202, None)
    status, answer, _ = await post(town, ann.key, {**note, "id": 6})
    assert answer is not None
    assert answer["id"] == 6
    assert "error" in answer


@proves("first.errors")
async def test_malformed_messages_and_unknown_methods_are_errors_of_the_protocol(town: Town, ann: Resident) -> None:
    for message in (
        request("no/such/method", {}),
        request("tools/call", {"name": "no_such_tool", "arguments": {}}),
        request("tools/call", {"arguments": {}}),
        {"jsonrpc": "1.0", "id": 1, "method": "tools/list"},
        [request("tools/list", {})],
        {},
    ):
        status, answer, _ = await post(town, ann.key, message)
        assert answer is not None
        assert "error" in answer, message
        assert "result" not in answer
        assert status < 500


@proves("first.errors", "first.validation")
async def test_a_call_that_fails_in_its_domain_is_a_result(town: Town, ann: Resident) -> None:
    for arguments in ({"id": "4711"}, {"id": "x"}, {}, {"id": "1", "surprise": 1}):
        status, answer, _ = await post(
            town, ann.key, request("tools/call", {"name": "get_message", "arguments": arguments})
        )
        assert status == 200
        assert answer is not None
        assert answer["result"]["isError"] is True
        assert "error" not in answer


@proves("first.executable")
def test_every_dependency_is_pinned_with_a_hash() -> None:
    lock = (ROOT / "requirements-dev.lock").read_text()
    pinned = [block for block in re.split(r"\n(?=[a-z0-9])", lock) if re.match(r"[a-z0-9]", block)]
    assert len(pinned) > 20
    for block in pinned:
        assert re.match(r"[A-Za-z0-9._\[\]-]+==", block), block.splitlines()[0]
        assert "--hash=sha256:" in block, block.splitlines()[0]


@proves("first.origin")
async def test_a_foreign_origin_is_refused_and_the_default_bind_is_loopback(town: Town, ann: Resident) -> None:
    status, _, _ = await post(town, ann.key, request("tools/list", {}), Origin="https://evil.example")
    assert status == 403
    assert HttpSettings().host == "127.0.0.1"


@proves("first.metadata")
async def test_the_challenge_makes_no_authorization_server_up(town: Town) -> None:
    status, _, answer = await post(town, None, request("tools/list", {}))
    assert status == 401
    assert "resource_metadata" not in answer.headers["WWW-Authenticate"]
    async with raw() as http, http.get(f"{town.here.url}/.well-known/oauth-protected-resource") as document:
        assert document.status in (401, 404)


@proves("first.audience")
async def test_a_token_of_the_upstream_api_does_not_open_this_server(town: Town, ann: Resident) -> None:
    await ann.call("list_messages")
    token = next(bearer for path, bearer in town.here.bearers if path == "/fmsg").removeprefix("Bearer ")
    assert token.count(".") == 2
    status, _, _ = await post(town, token, request("tools/list", {}))
    assert status == 401
