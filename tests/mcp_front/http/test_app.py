"""What a request meets before and after the MCP server, over a real socket."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from typing import Any

import pytest

from mcp_front.http.admission import BindRefused
from mcp_front.http.app import DOCUMENTATION_URL
from mcp_front.http.body import BodyReader
from mcp_front.settings import Budgets
from tests.mcp_front.fakes import ANSWER_S, Front, call, front, heads, request
from tests.within import within

MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def post(running: Front, key: str | None, message: object, **headers: str) -> tuple[int, Any, dict[str, str]]:
    """Status, decoded answer (the last event of a stream) and headers."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    async with running.http.post(running.endpoint, data=body, headers=heads(key, **headers)) as answer:
        text = await answer.text()
        if answer.content_type == "text/event-stream":
            return answer.status, events(text)[-1], dict(answer.headers)
        return answer.status, json.loads(text) if text else None, dict(answer.headers)


def events(text: str) -> list[Any]:
    """The data of the events of a stream."""
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


def modern(method: str, **params: Any) -> dict[str, Any]:
    """A request of the newest era."""
    return request(method, {**params, "_meta": MODERN_META})


def modern_heads(method: str, name: str | None = None) -> dict[str, str]:
    """The headers that go with it."""
    found = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": method}
    return found if name is None else {**found, "Mcp_Name": name}


class TestAnswers:
    async def test_a_quick_tool_is_answered_as_json(self, running: Front) -> None:
        status, answer, headers = await post(running, running.key(), call("who", id_="x"))
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert answer["id"] == "x"
        assert answer["result"]["content"][0]["text"] == "@alice@a.test"
        assert answer["result"]["structuredContent"] == {"text": "@alice@a.test"}
        assert len(headers["X-Request-ID"]) == 16

    async def test_the_newest_era_needs_no_session(self, running: Front) -> None:
        status, answer, _ = await post(
            running,
            running.key(),
            modern("tools/call", name="who", arguments={}),
            **modern_heads("tools/call", "who"),
        )
        assert status == 200
        assert answer["result"]["resultType"] == "complete"
        assert answer["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "fmsg-mcpd"

    async def test_trailing_blanks_of_a_header_are_no_part_of_it(self, running: Front) -> None:
        status, _, _ = await post(
            running,
            running.key(),
            modern("tools/call", name="who", arguments={}),
            MCP_Protocol_Version="2026-07-28",
            Mcp_Method="tools/call ",
            Mcp_Name="who \t",
        )
        assert status == 200

    async def test_headers_and_body_have_to_agree(self, running: Front) -> None:
        status, answer, _ = await post(
            running,
            running.key(),
            modern("tools/call", name="who", arguments={}),
            **modern_heads("tools/call", "hold"),
        )
        assert (status, answer["error"]["code"]) == (400, -32020)

    async def test_a_session_begins_with_the_callers_own_instructions(self, running: Front) -> None:
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        status, answer, _ = await post(running, running.key("@bob@a.test"), request("initialize", params))
        assert status == 200
        assert answer["result"]["protocolVersion"] == "2025-06-18"
        assert "You act as @bob@a.test." in answer["result"]["instructions"]
        status, answer, _ = await post(
            running, running.key("@eve@a.test"), modern("server/discover"), **modern_heads("server/discover")
        )
        assert "You act as @eve@a.test." in answer["result"]["instructions"]

    async def test_lists_are_the_same_in_every_answer(self, running: Front) -> None:
        key = running.key()
        for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list"):
            first, second = [await post(running, key, request(method)) for _ in range(2)]
            assert first[1] == second[1]
            assert "ttlMs" not in first[1]["result"]
            _, answer, _ = await post(running, key, modern(method), **modern_heads(method))
            assert answer["result"]["ttlMs"] > 0
        _, answer, _ = await post(running, key, request("tools/list", {"cursor": "2"}))
        assert answer["error"]["code"] == -32602

    async def test_resources_prompts_and_completion_act_as_the_caller(self, running: Front) -> None:
        key = running.key("@bob@a.test")
        message_id = running.host.control.deliver("@eve@b.test", ["@bob@a.test"], topic="For Bob", body="b")
        _, answer, _ = await post(running, key, request("resources/read", {"uri": "fmsg://inbox"}))
        assert "For Bob" in answer["result"]["contents"][0]["text"]
        _, answer, _ = await post(running, key, request("prompts/get", {"name": "chat", "arguments": {"thread": "7"}}))
        assert answer["result"]["messages"][0]["content"]["text"].count('"7"') == 2
        reference = {"ref": {"type": "ref/prompt", "name": "chat"}, "argument": {"name": "thread", "value": ""}}
        _, answer, _ = await post(running, key, request("completion/complete", reference))
        assert answer["result"]["completion"]["values"] == [str(message_id)]

    async def test_notifications_are_accepted_and_forgotten(self, running: Front) -> None:
        message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await post(running, running.key(), message))[:2] == (202, None)


class TestStreams:
    async def test_a_wait_becomes_a_stream_and_is_kept_alive(self) -> None:
        async with front(sse_after_s=0.01, ping_s=0.02) as running:
            async with running.http.post(
                running.endpoint, json=call("hold", id_=7), headers=heads(running.key())
            ) as answer:
                assert answer.content_type == "text/event-stream"
                for _ in range(3):
                    assert await answer.content.readline() == b": ping\r\n"
                    assert await answer.content.readline() == b"\r\n"
                running.toolbox.release.set()
                rest = events((await answer.content.read()).decode())
            assert [event["id"] for event in rest] == [7]
            assert rest[0]["result"]["content"][0]["text"] == "released"

    async def test_progress_opens_the_stream_at_once(self) -> None:
        async with (
            front(sse_after_s=60.0) as running,
            running.http.post(running.endpoint, json=call("hold", token="t"), headers=heads(running.key())) as answer,
        ):
            assert await answer.content.readline() == b"event: message\r\n"
            progress = json.loads((await answer.content.readline())[6:])
            assert progress["method"] == "notifications/progress"
            assert progress["params"] == {"progressToken": "t", "progress": 0.0, "message": "waiting"}
            running.toolbox.release.set()
            assert events((await answer.content.read()).decode())[0]["result"]["content"][0]["text"] == "released"

    async def test_a_client_that_accepts_json_only_gets_json(self) -> None:
        async with front(sse_after_s=0.0) as running:
            posted = asyncio.ensure_future(
                post(running, running.key(), call("hold", token=1), Accept="application/json")
            )
            await running.toolbox.until(holding=1)
            running.toolbox.release.set()
            status, answer, headers = await posted
            assert (status, headers["Content-Type"]) == (200, "application/json")
            assert answer["result"]["content"][0]["text"] == "released"

    async def test_a_client_that_accepts_streams_only_gets_one(self, running: Front) -> None:
        _, answer, headers = await post(running, running.key(), call("who"), Accept="text/event-stream")
        assert headers["Content-Type"] == "text/event-stream"
        assert answer["result"]["content"][0]["text"] == "@alice@a.test"

    @pytest.mark.parametrize("accept", ["application/json", "application/json, text/event-stream"])
    @pytest.mark.parametrize("sse_after_s", [0.0, 60.0])
    async def test_a_client_that_goes_away_cancels_its_call(self, accept: str, sse_after_s: float) -> None:
        async with front(sse_after_s=sse_after_s) as running:
            key = running.key()
            posted = asyncio.ensure_future(post(running, key, call("hold"), Accept=accept))
            await running.toolbox.until(holding=1)
            posted.cancel()
            await running.toolbox.until(cancelled=1, holding=0)
            assert (await post(running, key, call("who")))[0] == 200


class TestRefusals:
    @pytest.mark.parametrize(
        ("authorization", "error"),
        [
            (None, ""),
            ("", "invalid_request"),
            ("Bearer", "invalid_request"),
            ("Bearer ", "invalid_request"),
            ("Basic YTpi", "invalid_request"),
            ("Bearer one two", "invalid_request"),
            ("Bearer fmsgk_a,Bearer fmsgk_b", "invalid_request"),
            ("Bearer fmsgk_ü", "invalid_request"),
            ("Bearer " + "fmsgk_" + "a" * 2000, "invalid_request"),
            ("Bearer eyJhbGciOi.J9.x", "invalid_token"),
        ],
    )
    async def test_without_a_key_nothing_is_read(self, running: Front, authorization: str | None, error: str) -> None:
        headers = heads(None)
        if authorization is not None:
            headers["Authorization"] = authorization
        never = asyncio.Event()

        async def body() -> Any:
            yield b"{"
            await never.wait()

        async with running.http.post(running.endpoint, data=body(), headers=headers) as answer:
            assert answer.status == 401
            challenge = answer.headers["WWW-Authenticate"]
            assert challenge.startswith('Bearer realm="fmsg"')
            assert (f'error="{error}"' in challenge) == bool(error)
        assert running.host.control.stats()["requests"].get("token", 0) == 0

    async def test_a_key_in_any_case_of_bearer_is_taken(self, running: Front) -> None:
        headers = {**heads(None), "Authorization": f"bEARER  {running.key()} "}
        async with running.http.post(running.endpoint, json=call("who"), headers=headers) as answer:
            assert answer.status == 200

    async def test_a_refused_key_is_401_with_the_hosts_reason(self, running: Front) -> None:
        status, answer, headers = await post(running, "fmsgk_wrong_key", call("who"))
        assert status == 401
        assert 'error="invalid_token"' in headers["WWW-Authenticate"]
        assert "invalid api key" in answer["error"]["message"]

    async def test_the_hosts_outage_is_503_and_not_401(self, running: Front) -> None:
        key = running.key()
        running.host.control.set_identity_service(up=False)
        status, _, headers = await post(running, key, call("who"))
        assert (status, int(headers["Retry-After"]) > 0) == (503, True)
        assert "WWW-Authenticate" not in headers
        running.host.control.set_identity_service(up=True)
        assert (await post(running, key, call("who")))[0] == 200

    @pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "OPTIONS"])
    async def test_other_methods_are_405(self, running: Front, method: str) -> None:
        async with running.http.request(method, running.endpoint, headers=heads(running.key())) as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "POST")
        async with running.http.request(method, running.endpoint) as answer:
            assert answer.status == 401

    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            ({"Content-Type": "text/plain"}, 415),
            ({"Content-Type": "application/json; charset=latin-1"}, 415),
            ({"Content-Type": "application/json, text/plain"}, 415),
            ({"Content-Type": "application/json;charset=UTF-8"}, 200),
            ({"Content-Encoding": "gzip"}, 415),
            ({"Accept": "text/html"}, 406),
            ({"Accept": "*/*"}, 200),
            ({"Accept": "application/*;q=0.5"}, 200),
            ({"Host": "evil.example"}, 421),
            ({"Host": "localhost.evil.example"}, 421),
            ({"Host": "LOCALHOST:99"}, 200),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
        ],
    )
    async def test_what_a_request_claims_is_checked(self, running: Front, headers: dict[str, str], status: int) -> None:
        body = json.dumps(call("who")).encode()
        async with running.http.post(
            running.endpoint, data=body, headers={**heads(running.key()), **headers}
        ) as answer:
            assert answer.status == status, await answer.text()

    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (b"", -32700),
            (b"{", -32700),
            (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700),
            (b"[" + json.dumps(call("who")).encode() + b"]", -32600),
            (b"[]", -32600),
            (b"7", -32600),
            (b'{"id":1,"method":"ping"}', -32600),
            (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
            (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
            (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
            (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
            (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
            (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32600),
            (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 99 + b"1" + b"}" * 100, -32600),
        ],
    )
    async def test_what_is_no_request_is_told_so(self, running: Front, body: bytes, code: int) -> None:
        status, answer, _ = await post(running, running.key(), body)
        assert (status, answer["id"], answer["error"]["code"]) == (400, None, code)

    async def test_unknown_things_are_protocol_errors(self, running: Front) -> None:
        key = running.key()
        assert (await post(running, key, request("no/such")))[1]["error"]["code"] == -32601
        assert (await post(running, key, call("no_such")))[1]["error"]["code"] == -32602
        _, answer, _ = await post(running, key, request("resources/read", {"uri": "x://y"}))
        assert (answer["error"]["code"], answer["error"]["data"]) == (-32602, {"uri": "x://y"})
        status, answer, _ = await post(running, key, modern("no/such"), **modern_heads("no/such"))
        assert (status, answer["error"]["code"]) == (404, -32601)
        status, answer, _ = await post(running, key, modern("ping"), MCP_Protocol_Version="1999-01-01")
        assert (status, answer["error"]["code"]) == (400, -32020)

    async def test_a_fault_shows_nothing_of_itself(
        self, running: Front, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def broken(*_: object) -> None:
            raise RuntimeError("secret detail")

        monkeypatch.setattr("mcp_front.prompts.get_prompt", broken)
        key = running.key()
        _, answer, _ = await post(running, key, call("fail"))
        assert answer["result"]["isError"] is True
        assert "fmsgk_secret" not in json.dumps(answer)
        _, answer, _ = await post(running, key, request("prompts/get", {"name": "other"}))
        assert answer["error"]["code"] == -32603
        assert "secret detail" not in json.dumps(answer)
        assert {record.getMessage() for record in caplog.records} >= {"tool failed", "request failed"}

    async def test_other_paths_are_404(self, running: Front) -> None:
        for path in ("/x", "/mcp/x", "/mc", "//", "/healthz/"):
            async with running.http.get(f"{running.url}{path}") as answer:
                assert answer.status == 404, path
                assert "/mcp" in await answer.text()

    async def test_the_root_says_what_this_is(self, running: Front) -> None:
        async with running.http.get(f"{running.url}/") as answer:
            assert (answer.status, answer.content_type) == (200, "text/plain")
            text = await answer.text()
        assert "MCP server that gives AI agents an fmsg address" in text
        assert "/mcp" in text
        assert DOCUMENTATION_URL in text

    async def test_the_endpoint_is_where_the_path_says(self) -> None:
        async with front(path="/fmsg/mcp") as running:
            key = running.key()
            for path, status in (("/fmsg/mcp", 200), ("/fmsg/mcp/", 200), ("/mcp", 404), ("/fmsg", 404)):
                url = f"{running.url}{path}"
                async with running.http.post(url, json=call("who"), headers=heads(key)) as answer:
                    assert answer.status == status, path
            async with running.http.get(f"{running.url}/") as answer:
                assert "connect to /fmsg/mcp." in await answer.text()

    @pytest.mark.parametrize("path", ["/", "", "mcp", "/mcp/", "/a b", "/a?b", "/healthz", "/readyz", "/a//b", "/%41"])
    async def test_a_path_that_cannot_be_served_is_refused(self, path: str) -> None:
        with pytest.raises(ExceptionGroup) as refused:
            async with front(path=path):
                pytest.fail("served")
        assert refused.group_contains(BindRefused, match="FMSG_MCP_PATH")


class TestBudgets:
    async def test_a_large_body_is_refused_by_its_length_and_by_its_bytes(self) -> None:
        async with front(budgets=Budgets(max_body_bytes=100_000)) as running:
            key = running.key()
            status, answer, _ = await post(running, key, call("size", data="x" * 100_000))
            assert status == 413
            assert "FMSG_MCP_MAX_BODY_BYTES" in answer["error"]["message"]

            async def pieces() -> Any:
                for _ in range(4):
                    yield b" " * 50_000

            async with running.http.post(running.endpoint, data=pieces(), headers=heads(key)) as chunked:
                assert chunked.status == 413
            assert (await post(running, key, call("size", data="x" * 90_000)))[0] == 200

    async def test_a_slow_body_is_408(self) -> None:
        async with front(budgets=Budgets(body_s=0.05)) as running:
            never = asyncio.Event()

            async def body() -> Any:
                yield b"{"
                await never.wait()

            async with running.http.post(running.endpoint, data=body(), headers=heads(running.key())) as answer:
                assert answer.status == 408
                assert "FMSG_MCP_BODY_SECONDS" in await answer.text()

    async def test_uploads_are_bounded_per_caller_and_for_all(self) -> None:
        budgets = Budgets(upload_bytes=400_000, upload_bytes_per_caller=200_000)
        async with front(budgets=budgets) as running:
            alice, bob = running.key(), running.key("@bob@a.test")
            never = asyncio.Event()

            async def begun(key: str, size: int) -> Any:
                headers = {**heads(key), "Content-Length": str(size), "Expect": "100-continue"}

                async def body() -> Any:
                    yield b" " * (size - 1)
                    seen.set()
                    await never.wait()

                seen = asyncio.Event()
                upload = asyncio.ensure_future(running.http.post(running.endpoint, data=body(), headers=headers))
                await within(seen.wait(), ANSWER_S)
                return upload

            async def refused(key: str) -> tuple[Any, dict[str, str]]:
                async with asyncio.timeout(ANSWER_S):
                    while True:
                        status, answer, headers = await post(running, key, call("size", data="x" * 90_000))
                        if status == 429:
                            return answer, headers

            first = await begun(alice, 150_000)
            answer, headers = await refused(alice)
            assert headers["Retry-After"] == "5"
            assert "FMSG_MCP_UPLOAD_BYTES_PER_CALLER" in answer["error"]["message"]
            second = await begun(bob, 140_000)
            answer, _ = await refused(running.key("@eve@a.test"))
            assert "(FMSG_MCP_UPLOAD_BYTES)" in answer["error"]["message"]
            assert (await post(running, alice, call("who")))[0] == 200
            for upload in (first, second):
                upload.cancel()
            async with asyncio.timeout(ANSWER_S):
                while (await post(running, alice, call("size", data="x" * 90_000)))[0] != 200:
                    continue

    async def test_what_was_read_of_a_refused_body_is_free_at_once(self) -> None:
        async with front(budgets=Budgets(upload_bytes=400_000, upload_bytes_per_caller=200_000)) as running:
            gc.disable()  # It would free the body by and by.
            try:
                status, _, _ = await post(running, running.key(), b'{"a": "' + b"x" * 300_000)
                assert status == 429
                assert not [one for one in gc.get_objects() if isinstance(one, BodyReader)]
            finally:
                gc.enable()

    async def test_waits_are_bounded_per_caller_and_for_all(self) -> None:
        async with front(budgets=Budgets(max_waits_per_caller=2, max_waits=3)) as running:
            alice, bob = running.key(), running.key("@bob@a.test")
            held = [asyncio.ensure_future(post(running, key, call("hold"))) for key in (alice, alice, bob)]
            await running.toolbox.until(holding=3)
            for key, budget in ((alice, "MAX_WAITS_PER_CALLER"), (bob, "MAX_WAITS")):
                status, answer, _ = await post(running, key, call("hold"))
                assert (status, answer["result"]["isError"]) == (200, True)
                assert f"(FMSG_MCP_{budget})" in answer["result"]["content"][0]["text"]
            running.toolbox.release.set()
            await asyncio.gather(*held)
            assert (await post(running, alice, call("hold")))[1]["result"]["isError"] is False


class TestOrigins:
    async def test_an_allowed_origin_gets_a_preflight_without_a_key(self) -> None:
        async with front(allowed_origins=("https://app.example.com",)) as running:
            headers = {
                "Origin": "https://APP.example.com:443",
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization, mcp-param-region, x-evil",
            }
            async with running.http.options(running.endpoint, headers=headers) as answer:
                assert answer.status == 204
                assert answer.headers["Access-Control-Allow-Origin"] == "https://APP.example.com:443"
                allowed = answer.headers["Access-Control-Allow-Headers"].split(", ")
                assert {"authorization", "mcp-param-region"} <= set(allowed)
                assert "x-evil" not in allowed
                assert "Access-Control-Allow-Credentials" not in answer.headers
            for origin in ("http://app.example.com", "https://app.example.com:444", "https://x.app.example.com"):
                async with running.http.options(running.endpoint, headers={**headers, "Origin": origin}) as answer:
                    assert answer.status == 403
            _, _, told = await post(running, running.key(), call("who"), Origin="https://app.example.com")
            assert told["Access-Control-Allow-Origin"] == "https://app.example.com"
            status, _, told = await post(running, None, call("who"), Origin="https://app.example.com")
            assert (status, told["Access-Control-Allow-Origin"]) == (401, "https://app.example.com")


class TestHealth:
    async def test_it_is_alive_and_ready_whatever_the_host_does(self, running: Front) -> None:
        running.host.control.set_identity_service(up=False)
        for path in ("/healthz", "/readyz"):
            async with running.http.get(running.url + path, headers={"Host": "10.0.0.1"}) as answer:
                assert answer.status == 200

    async def test_it_is_unready_while_redis_cannot_be_used_and_serves_all_the_same(self) -> None:
        usable = False

        async def store_ready() -> bool:
            return usable

        async with front(store_ready=store_ready) as running:
            for path, status in (("/readyz", 503), ("/readyz?exclude=redis", 200), ("/healthz", 200)):
                async with running.http.get(running.url + path) as answer:
                    assert answer.status == status, path
                    told = await answer.json(content_type=None)
                    if status == 503:
                        assert told == {"ready": False, "reason": "Redis cannot be used"}
            status, _, _ = await post(running, running.key(), call("who"))
            assert status == 200
            usable = True
            async with running.http.get(f"{running.url}/readyz") as answer:
                assert answer.status == 200

    async def test_a_draining_front_is_unready_for_a_proxy_too(self) -> None:
        async with front(drain_notice_s=0.5) as running:
            running.stop.set()
            async with asyncio.timeout(ANSWER_S):
                while True:
                    async with running.http.get(f"{running.url}/readyz?exclude=redis") as answer:
                        told = await answer.json(content_type=None)
                        if answer.status == 503:
                            break
            assert told == {"ready": False, "reason": "draining"}

    async def test_request_ids_are_taken_from_trusted_proxies_only(self) -> None:
        async with front(trusted_proxies=("127.0.0.0/8",)) as running:
            _, _, told = await post(running, running.key(), call("who"), X_Request_ID="abc-1")
            assert told["X-Request-ID"] == "abc-1"
            _, _, told = await post(running, running.key(), call("who"), X_Request_ID="a b")
            assert told["X-Request-ID"] != "a b"
        async with front() as running:
            _, _, told = await post(running, running.key(), call("who"), X_Request_ID="abc-1")
            assert told["X-Request-ID"] != "abc-1"


async def test_ten_callers_at_once_are_told_apart(running: Front) -> None:
    keys = {f"@u{number}@a.test": running.key(f"@u{number}@a.test") for number in range(10)}

    async def asked(address: str) -> None:
        _, answer, _ = await post(running, keys[address], call("who"))
        assert answer["result"]["content"][0]["text"] == address

    await asyncio.gather(*(asked(address) for address in [*keys] * 5))


class TestPages:
    """Browser pages of this machine, for example the MCP Inspector's on http://localhost:6274."""

    async def test_a_page_of_this_machine_is_served(self, running: Front) -> None:
        origin = {"Origin": "http://localhost:6274"}
        asked = {
            **origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type,mcp-protocol-version",
        }
        async with running.http.options(running.endpoint, headers=asked) as answer:
            assert answer.status == 204
            assert answer.headers["Access-Control-Allow-Origin"] == "http://localhost:6274"
            allowed = answer.headers["Access-Control-Allow-Headers"]
            assert all(name in allowed for name in ("authorization", "content-type", "mcp-protocol-version"))
        status, answer_, headers = await post(running, running.key(), call("who"), **origin)
        assert (status, "result" in answer_) == (200, True)
        assert headers["Access-Control-Allow-Origin"] == "http://localhost:6274"
        assert (await post(running, running.key(), call("who"), Origin="http://evil.example"))[0] == 403


class TestRevocation:
    """What does not come from the host is answered for a minute after the host last accepted the key, and no longer."""

    @pytest.mark.parametrize(
        ("method", "params"),
        [
            ("tools/call", {"name": "whoami", "arguments": {}}),
            ("tools/call", {"name": "resolve_address", "arguments": {"name": "@bob@a.test"}}),
            ("tools/call", {"name": "wait_subscriptions", "arguments": {"action": "list"}}),
            (
                "completion/complete",
                {"ref": {"type": "ref/prompt", "name": "chat"}, "argument": {"name": "with", "value": ""}},
            ),
        ],
    )
    async def test_a_revoked_key_gets_no_answer_after_a_minute(self, method: str, params: dict[str, Any]) -> None:
        clock = Clock()
        async with front(product=True, clock=clock) as running:
            key = running.key()
            status, answer, _ = await post(running, key, request(method, params))
            assert (status, "error" in answer) == (200, False)
            running.host.control.revoke_key(key)
            clock.now_s += 61
            status, answer, _ = await post(running, key, request(method, params))
            assert status == 200
            assert "does not accept" in json.dumps(answer) or "refused" in json.dumps(answer)
            assert "result" not in answer or answer["result"]["isError"]
            assert (await post(running, key, request(method, params)))[0] == 401

    async def test_a_new_session_of_a_revoked_key_is_told_no_address(self) -> None:
        clock = Clock()
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        async with front(product=True, clock=clock) as running:
            key = running.key()
            _, answer, _ = await post(running, key, request("initialize", client))
            assert "@alice@a.test" in answer["result"]["instructions"]
            running.host.control.revoke_key(key)
            clock.now_s += 61
            _, answer, _ = await post(running, key, request("initialize", client))
            assert "@alice@a.test" not in json.dumps(answer)

    async def test_a_caller_in_use_costs_the_host_an_exchange_in_half_a_minute(self) -> None:
        clock = Clock()
        async with front(product=True, clock=clock) as running:
            key = running.key()
            for _ in range(60):
                clock.now_s += 1
                assert (await post(running, key, call("whoami")))[0] == 200
            assert running.host.control.stats()["requests"]["token"] <= 3


class Clock:
    """POSIX seconds that go on only when told."""

    def __init__(self) -> None:
        self.now_s = time.time()

    def __call__(self) -> float:
        return self.now_s
