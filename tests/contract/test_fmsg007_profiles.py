"""FMSG-007, Deployment Profiles: one caller over stdio, many over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ops.settings import variables
from sandbox.host import SandboxHost, serve
from tests.contract.requirements import proves
from tests.contract.town import Heard, Town, raw, request, running_town

ANN = "@ann@here.test"
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
ANSWER_S = 20.0
"""A process starts in about a second, and other tests use the machine too."""


class Pipe:
    """A stdio server as a process, spoken to in lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[bytes] = []
        """Everything it wrote to standard output."""

    async def tell(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()

    async def ask(self, method: str, params: dict[str, Any] | None = None, *, id_: int = 1) -> dict[str, Any]:
        await self.tell(request(method, params, id_=id_))
        assert self._process.stdout is not None
        async with asyncio.timeout(ANSWER_S):
            while True:
                line = await self._process.stdout.readline()
                assert line, "the server has ended"
                self.lines.append(line)
                message: dict[str, Any] = json.loads(line)
                if message.get("id") == id_ and "method" not in message:
                    return message

    async def begin(self) -> dict[str, Any]:
        answer = await self.ask("initialize", INITIALIZE, id_=100)
        await self.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result: dict[str, Any] = (await self.ask("tools/call", {"name": tool, "arguments": arguments}, id_=7))["result"]
        return result

    async def end(self) -> bytes:
        """Close its input; what else it wrote to standard output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        async with asyncio.timeout(ANSWER_S):
            rest = await self._process.stdout.read()
            await self._process.wait()
        return rest


@asynccontextmanager
async def piped(**environment: str) -> AsyncIterator[Pipe]:
    """A stdio server with these variables and no other FMSG ones."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FMSG_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fmsg_mcpd", "stdio",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**clean, **environment}, limit=2**24,
    )  # fmt: skip
    errors = asyncio.create_task(process.stderr.read()) if process.stderr else None
    try:
        yield Pipe(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        if errors is not None:
            await errors


@pytest.fixture
async def host() -> AsyncIterator[tuple[SandboxHost, str]]:
    sandbox = SandboxHost("here.test")
    async with serve(sandbox) as url:
        yield sandbox, url


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    async with running_town() as running:
        yield running


@pytest.fixture
def heard() -> Iterator[Heard]:
    """Everything the process logs."""
    handler = Heard()
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


@proves("profiles.stdio", "stdio.variables", "stdio.one_caller")
async def test_stdio_serves_the_caller_of_its_environment(host: tuple[SandboxHost, str], tmp_path: Any) -> None:
    sandbox, url = host
    directory = tmp_path / "names.json"
    directory.write_text('{"bobby": "@bob@there.test"}')
    key = sandbox.control.create_key(ANN)
    async with piped(
        FMSG_API_URL=url, FMSG_API_KEY=key, FMSG_DEFAULT_DOMAIN="here.test", FMSG_DIRECTORY=str(directory)
    ) as pipe:
        await pipe.begin()
        for _ in range(2):
            who = (await pipe.call("whoami"))["structuredContent"]
            assert who == {"address": ANN, "api_url": url, "transport": "stdio"}
        bobby = (await pipe.call("resolve_address", name="bobby"))["structuredContent"]
        assert bobby == {"address": "@bob@there.test", "resolution": "directory"}
        cat = (await pipe.call("resolve_address", name="cat"))["structuredContent"]
        assert cat == {"address": "@cat@here.test", "resolution": "default_domain"}


@proves("stdio.inspectable", "stdio.missing")
@pytest.mark.parametrize(
    ("environment", "missing"),
    [
        ({}, ["FMSG_API_URL", "FMSG_API_KEY"]),
        ({"FMSG_API_URL": "https://fmsg.example.com"}, ["FMSG_API_KEY"]),
        ({"FMSG_API_KEY": "fmsgk_a_b"}, ["FMSG_API_URL"]),
    ],
)
async def test_without_configuration_it_can_be_inspected_and_calls_name_what_is_missing(
    environment: dict[str, str], missing: list[str]
) -> None:
    async with piped(**environment) as pipe:
        began = await pipe.begin()
        assert began["result"]["serverInfo"]["name"]
        tools = (await pipe.ask("tools/list", id_=2))["result"]["tools"]
        assert {"whoami", "send_message", "wait_for_message"} <= {tool["name"] for tool in tools}
        for tool, arguments in (("whoami", {}), ("send_message", {"to": ["@a@b.test"], "body": "x"})):
            result = await pipe.call(tool, **arguments)
            assert result["isError"] is True
            text = result["content"][0]["text"]
            assert all(name in text for name in missing)
            assert not any(name in text for name in {"FMSG_API_URL", "FMSG_API_KEY"} - set(missing))


@proves("stdio.stdout")
async def test_nothing_but_messages_is_on_standard_output(host: tuple[SandboxHost, str]) -> None:
    sandbox, url = host
    async with piped(
        FMSG_API_URL=url, FMSG_API_KEY=sandbox.control.create_key(ANN), FMSG_LOG_LEVEL="debug", PYTHONWARNINGS="always"
    ) as pipe:
        await pipe.begin()
        await pipe.call("list_messages")
        sandbox.control.fail_next("list", status=500)
        await pipe.call("list_messages")
        await pipe.call("wait_for_message", timeout_seconds=0)
        await pipe.ask("no/such/method", id_=9)
        rest = await pipe.end()
        for line in (*pipe.lines, *rest.splitlines()):
            assert json.loads(line)["jsonrpc"] == "2.0"


@proves("stdio.prefix")
def test_every_variable_has_the_prefix() -> None:
    assert all(variable.name.startswith("FMSG_") for _, variable, _, _ in variables())


@proves("profiles.exchange", "first.passthrough")
async def test_requests_carry_exchanged_tokens_that_are_renewed(town: Town) -> None:
    town.here.control.set_token_life(30.0)
    ann = await town.resident("ann")
    await ann.call("list_messages")
    town.here.control.expire_tokens()
    assert not (await ann.call("list_messages")).is_error
    exchanges = [bearer for path, bearer in town.here.bearers if path == "/fmsg/token"]
    others = [bearer for path, bearer in town.here.bearers if path != "/fmsg/token"]
    assert set(exchanges) == {f"Bearer {ann.key}"}
    assert len(exchanges) >= 2
    assert others
    assert all(bearer.startswith("Bearer eyJ") and ann.key not in bearer for bearer in others)


@proves("http.path", "http.bearer", "interop.401")
@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer fmsgk_no_suchkey", "Basic x", "Bearer x y"])
@pytest.mark.parametrize("method", ["initialize", "tools/list", "tools/call"])
async def test_every_request_needs_a_valid_key(town: Town, authorization: str | None, method: str) -> None:
    params = {"initialize": INITIALIZE, "tools/list": {}, "tools/call": {"name": "whoami", "arguments": {}}}[method]
    headers = {} if authorization is None else {"Authorization": authorization}
    async with raw() as http, http.post(town.here.endpoint, json=request(method, params), headers=headers) as answer:
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@proves("http.identity", "http.isolation", "first.isolated", "first.correlation")
async def test_each_request_acts_as_the_address_of_its_key_and_sees_nothing_of_others(town: Town) -> None:
    ann, cat = await town.resident("ann"), await town.resident("cat")
    town.here.control.deliver("@x@there.test", [ann.address], topic="for ann alone", body="secret")
    message_id = (await ann.newest())["id"]
    waiting = await ann.call("wait_for_message", after_id="0", timeout_seconds=0, subscription="mine")
    assert waiting["thread_topic"] == "for ann alone"

    async def who(key: str) -> str:
        body = request("tools/call", {"name": "whoami", "arguments": {}}, id_=1)
        async with raw(key) as http, http.post(town.here.endpoint, json=body) as answer:
            told: str = (await answer.json())["result"]["structuredContent"]["address"]
            return told

    told = await asyncio.gather(*(who(key) for key in (ann.key, cat.key) * 10))
    assert told == [ann.address, cat.address] * 10
    for got in (
        await cat.call("get_message", id=message_id),
        await cat.call("get_thread", id=message_id),
        await cat.call("wait_for_message", after_id="0", timeout_seconds=0),
        await cat.call("wait_subscriptions", action="list"),
        await cat.call("list_messages"),
    ):
        dumped = got.result.model_dump_json()
        assert "secret" not in dumped
        assert "for ann alone" not in dumped
        assert ann.address not in dumped
    assert (await cat.call("wait_subscriptions", action="list"))["subscriptions"] == []


@proves("http.no_shared_key")
async def test_a_hosted_server_refuses_a_key_for_all() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FMSG_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fmsg_mcpd", "front",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        env={**environment, "FMSG_API_URL": "http://127.0.0.1:9", "FMSG_API_KEY": "fmsgk_abc_0123456789abcdef"},
    )  # fmt: skip
    async with asyncio.timeout(ANSWER_S):
        _, errors = await process.communicate()
    assert process.returncode not in (0, None)
    assert b"FMSG_API_KEY" in errors
    assert b"0123456789abcdef" not in errors


@proves("http.host_header")
async def test_the_host_header_is_checked(town: Town) -> None:
    ann = await town.resident("ann")
    body = request("tools/list", {})
    async with raw(ann.key) as http:
        async with http.post(town.here.endpoint, json=body, headers={"Host": "evil.example"}) as answer:
            assert answer.status in (403, 421)
        async with http.post(town.here.endpoint, json=body) as answer:
            assert answer.status == 200


@proves("http.healthz")
async def test_healthz(town: Town) -> None:
    async with raw() as http, http.get(f"{town.here.url}/healthz") as answer:
        assert answer.status == 200


@proves("http.key_not_kept", "safety.never_persisted", "safety.no_credentials")
async def test_a_key_is_in_no_log_and_no_store(town: Town, heard: Heard) -> None:
    ann = await town.resident("ann")
    await ann.call("wait_for_message", timeout_seconds=0, subscription="mine")
    await ann.call("send_message", to=[ann.address], body="x", idempotency_key="k")
    town.here.control.fail_next("list", status=500, text=f"you sent {ann.key}")
    assert (await ann.call("list_messages")).is_error
    secret = ann.key.rpartition("_")[2]
    assert secret not in "\n".join(heard.lines)
    assert not [text for text in _texts(town.here.store) if secret in text]


def _texts(root: object) -> Iterator[str]:
    """Every text and byte string that can be reached from an object."""
    met: set[int] = set()
    todo = [root]
    while todo:
        value = todo.pop()
        if id(value) in met or isinstance(value, (type, int, float)) or callable(value):
            continue
        met.add(id(value))
        if isinstance(value, str):
            yield value
        elif isinstance(value, (bytes, bytearray)):
            yield value.decode("latin-1")
        elif isinstance(value, dict):
            todo += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple, set, frozenset)):
            todo += value
        else:
            names = [*getattr(value, "__dict__", {}), *getattr(type(value), "__slots__", ())]
            todo += [getattr(value, name, None) for name in names]
            todo += [getattr(value, name, None) for name in getattr(value, "__struct_fields__", ())]
