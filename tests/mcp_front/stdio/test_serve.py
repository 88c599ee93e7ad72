"""The stdio server over real pipes, in this process; the host is a sandbox."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from fmsg.http import HostHttp
from ledger.port import Store
from ledger.store import MemoryStore
from mcp_front.settings import FrontSettings
from mcp_front.stdio.file_descriptors import ClientDescriptors
from mcp_front.stdio.opening import AlreadyRead
from mcp_front.stdio.pipes import Lines, Sink, lines_from, sink_to
from mcp_front.stdio.serve import serve_stdio
from mcp_front.tools.tool import Tool
from sandbox.host import SandboxHost, serve
from tests.mcp_front.fakes import ANSWER_S, FakeToolbox, call, request
from tests.within import within

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE = request(
    "initialize",
    {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    id_=0,
)
OpenBackend = Callable[[], AbstractAsyncContextManager[tuple[Store, HostHttp]]]


class Session:
    """A client's side of the pipes."""

    def __init__(self, lines: Lines, sink: Sink, toolbox: FakeToolbox, host: SandboxHost) -> None:
        self.lines = lines
        self.sink = sink
        self.toolbox = toolbox
        self.host = host
        self.stop = asyncio.Event()
        self.ended = asyncio.Event()
        self.opened = 0
        """How often the backend was opened."""
        self.closed = 0

    async def say(self, *messages: object) -> None:
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode()
            await self.sink.write(line + b"\n")

    async def hear(self) -> Any:
        """The next message of the server; None at its end."""
        async with asyncio.timeout(ANSWER_S):
            line = await self.lines.next()
        return json.loads(line) if line else None

    async def ask(self, message: object) -> Any:
        await self.say(message)
        return await self.hear()

    async def begin(self) -> Any:
        answer = await self.ask(INITIALIZE)
        await self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer


@asynccontextmanager
async def session(
    *,
    api_key: str | None = "",
    api_url: str | None = "",
    broken: Exception | None = None,
    tools: Mapping[str, Tool] | None = None,
    already_read: AlreadyRead | None = None,
    fault: str | None = None,
    deaf: bool = False,
    version: str = "1.2.3",
) -> AsyncIterator[Session]:
    """A running server. Empty key and URL stand for good ones."""
    host, fake = SandboxHost("a.test"), FakeToolbox()
    to_server, to_client = os.pipe(), os.pipe()
    if deaf:
        os.close(to_client[0])
        to_client = (os.open(os.devnull, os.O_RDONLY), to_client[1])
    async with serve(host) as url, lines_from(to_client[0]) as lines, asyncio.TaskGroup() as tasks:
        sink_context = sink_to(to_server[1])
        client = Session(lines, await sink_context.__aenter__(), fake, host)

        @asynccontextmanager
        async def backend() -> AsyncIterator[tuple[Store, HostHttp]]:
            client.opened += 1
            if broken is not None and client.opened == 1:
                raise broken
            async with HostHttp(url) as http, MemoryStore() as store:
                yield store, http
            client.closed += 1

        async def run() -> None:
            await serve_stdio(
                FrontSettings(transport="stdio", api_url=url if api_url == "" else api_url),
                ClientDescriptors(to_server[0], to_client[1]),
                api_key=host.control.create_key("@ann@a.test") if api_key == "" else api_key,
                backend=backend,
                version=version,
                stop=client.stop,
                tools=tools or fake.tools,
                already_read=already_read or AlreadyRead(),
                fault=fault,
            )
            client.ended.set()
            os.close(to_client[1])

        tasks.create_task(run())
        yield client
        await sink_context.__aexit__(None, None, None)
        os.close(to_server[1])
        await within(client.ended.wait(), ANSWER_S)
    os.close(to_server[0])
    os.close(to_client[0])


@pytest.mark.parametrize(
    ("api_key", "api_url", "missing"),
    [
        (None, None, "FMSG_API_URL and FMSG_API_KEY are not set"),
        (None, "", "FMSG_API_KEY is not set"),
        ("", None, "FMSG_API_URL is not set"),
    ],
)
async def test_without_configuration_it_shows_what_it_has_and_says_what_is_missing(
    api_key: str | None, api_url: str | None, missing: str
) -> None:
    async with session(api_key=api_key, api_url=api_url) as client:
        answer = await client.begin()
        assert answer["result"]["serverInfo"]["version"] == "1.2.3"
        assert len((await client.ask(request("tools/list")))["result"]["tools"]) == 7
        result = (await client.ask(call("who")))["result"]
        assert result["isError"]
        assert missing in result["content"][0]["text"]
        assert client.opened == 0


async def test_the_first_call_opens_what_all_calls_are_served_with() -> None:
    async with session() as client:
        await client.begin()
        await client.ask(request("tools/list"))
        assert client.opened == 0
        await client.say(call("who", id_=1), call("upstream", id_=2), call("who", id_=3))
        answers = {answer["id"]: answer for answer in [await client.hear() for _ in range(3)]}
        assert answers[1]["result"]["content"][0]["text"] == "@ann@a.test"
        assert answers[2]["result"]["content"][0]["text"] == "0"
        assert client.opened == 1
        assert client.host.control.stats()["requests"]["token"] == 1
    assert client.closed == 1


async def test_a_backend_that_cannot_be_opened_is_tried_again_with_the_next_call() -> None:
    async with session(broken=ConnectionError("a secret detail")) as client:
        await client.begin()
        result = (await client.ask(call("who")))["result"]
        assert result["isError"]
        assert "secret" not in json.dumps(result)
        assert (await client.ask(call("who")))["result"]["content"][0]["text"] == "@ann@a.test"


async def test_a_refused_key_is_a_result_with_the_hosts_reason() -> None:
    async with session(api_key="fmsgk_wrong_key") as client:
        await client.begin()
        result = (await client.ask(call("who")))["result"]
        assert result["isError"]
        assert "invalid api key" in result["content"][0]["text"]


async def test_the_newest_era_needs_no_beginning() -> None:
    async with session() as client:
        answer = await client.ask(request("tools/call", {"name": "who", "arguments": {}, "_meta": META}))
        assert answer["result"]["resultType"] == "complete"
        listen = {"notifications": {"resourceSubscriptions": ["fmsg://inbox"]}, "_meta": META}
        acknowledged = await client.ask(request("subscriptions/listen", listen, id_="s"))
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"


async def test_progress_and_cancellation() -> None:
    async with session() as client:
        await client.begin()
        progress = await client.ask(call("hold", id_=5, token="t"))
        assert progress["params"] == {"progressToken": "t", "progress": 0.0, "message": "waiting"}
        await client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})
        await client.toolbox.until(cancelled=1)
        assert (await client.ask(call("who", id_=6)))["id"] == 6


async def test_what_is_no_message_is_told_so_and_the_session_goes_on() -> None:
    async with session() as client:
        await client.begin()
        for line, request_id in ((b"not json", None), (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', 1.5)):
            answer = await client.ask(line)
            assert (answer["id"], "error" in answer) == (request_id, True)
        await client.say(b"", b"  ")
        assert (await client.ask(request("ping", id_="p")))["id"] == "p"


async def test_half_a_surrogate_pair_is_the_arguments_own_error() -> None:
    async with session() as client:
        await client.begin()
        line = json.dumps(call("size", id_=4, data="\ud800")).encode()
        answer = await client.ask(line)
        assert (answer["id"], answer["result"]["isError"]) == (4, True)
        assert answer["result"]["content"][0]["text"].startswith("data: holds half a surrogate pair")


async def test_what_a_client_gets_back_may_be_half_a_surrogate_pair() -> None:
    async with session() as client:
        await client.begin()
        assert (await client.ask(request("ping", id_="\ud800")))["id"] == "\ud800"
        assert (await client.ask(request("\udc00", id_=2)))["id"] == 2
        progress = await client.ask(call("hold", id_=5, token="\ud800"))
        assert progress["params"]["progressToken"] == "\ud800"
        client.toolbox.release.set()
        assert (await client.hear())["id"] == 5


@pytest.mark.parametrize("request_id", [[], {}, None, True, 1.5, ["a"], {"a": 1}])
async def test_a_cancellation_of_anything_leaves_the_session_as_it_is(request_id: object) -> None:
    async with session() as client:
        await client.begin()
        await client.say(call("hold", id_=5))
        await client.toolbox.until(holding=1)
        await client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})
        assert (await client.ask(call("who", id_=6)))["id"] == 6
        assert client.toolbox.holding == 1
        client.toolbox.release.set()
        assert (await client.hear())["id"] == 5


async def test_nothing_is_served_before_initialize() -> None:
    async with session() as client:
        for method in ("tools/list", "prompts/list", "resources/list", "tools/call"):
            answer = await client.ask(request(method, {"name": "who"} if method == "tools/call" else None))
            assert "initialize" in answer["error"]["message"]
        assert client.opened == 0


async def test_a_wrong_setting_is_told_by_every_call_and_ends_nothing() -> None:
    async with session(fault="FMSG_MCP_PORT: must be a number.") as client:
        await client.begin()
        assert (await client.ask(request("tools/list")))["result"]["tools"]
        for _ in range(2):
            result = (await client.ask(call("who")))["result"]
            assert result["isError"]
            assert "FMSG_MCP_PORT: must be a number." in result["content"][0]["text"]
        assert client.opened == 0


async def test_a_reader_that_is_gone_ends_the_server_although_its_input_stays_open() -> None:
    async with session(deaf=True) as client:
        await client.ended.wait()


async def test_a_64_bit_id_is_exact() -> None:
    async with session() as client:
        await client.begin()
        assert (await client.ask(request("ping", id_=2**63 - 1)))["id"] == 2**63 - 1


async def test_what_runs_at_the_end_is_finished() -> None:
    async with session() as client:
        await client.begin()
        await client.say(call("hold", id_=5))
        await client.toolbox.until(holding=1)
        client.stop.set()
        answer = await client.hear()
        assert answer["result"]["content"][0]["text"] == "drained"
        assert await client.hear() is None
        assert client.toolbox.cancelled == 0


async def test_a_client_that_goes_away_ends_the_process() -> None:
    async with session() as client:
        await client.begin()
        await client.say(call("hold", id_=5))
        await client.toolbox.until(holding=1)


async def test_a_call_that_does_not_end_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_front.stdio.serve.GRACE_S", 0.05)
    async with session() as client:
        await client.begin()
        client.host.control.hang_next("list")
        await client.say(call("upstream", id_=5))
        async with asyncio.timeout(ANSWER_S):
            while not client.host.control.stats()["requests"].get("list"):  # noqa: ASYNC110 - the host does not tell
                await asyncio.sleep(0.01)
        client.stop.set()
        await client.ended.wait()
        client.host.control.release()


async def test_an_answer_that_was_given_is_not_given_again() -> None:
    line = json.dumps(INITIALIZE).encode() + b"\n"
    async with session(already_read=AlreadyRead(line + b'{"jsonrpc": "2.0", "method": "notif', 0)) as client:
        await client.say(b'ications/initialized"}', request("ping", id_=0))
        assert await client.hear() == {"jsonrpc": "2.0", "id": 0, "result": {}}
