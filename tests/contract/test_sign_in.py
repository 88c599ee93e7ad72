"""A person connects an assistant in a browser: a real MCP client, two fronts behind a proxy, a real browser.

Where there is no proxy on PATH, the two front processes share one port.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from ledger.embedded import free_port
from ledger.seal import SealKeys
from ops.agent import Agent, ToolFailed
from ops.processes import Child
from sandbox.host import SandboxHost, serve
from tests.fleet.proxy import find_proxy, in_front_of
from tests.mcp_front.oauth.visitor import fields

CALLBACK = "http://127.0.0.1:9/callback"
"""Where the assistant would listen; nobody has to, since what is sent there is read off the redirect."""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [pytest.mark.processes]

Person = Callable[[str], Awaitable[str]]
"""Goes through the pages at a URL; returns the URL the browser is sent back to."""


class Memory(TokenStorage):
    """What an assistant keeps."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Fleet:
    """Two front processes behind one URL, and the host they serve."""

    def __init__(self, url: str, host: SandboxHost, key: str) -> None:
        self.url = url
        self.host = host
        self.key = key

    @asynccontextmanager
    async def assistant(
        self, person: Person, *, scope: str | None = None, memory: Memory | None = None
    ) -> AsyncIterator[Agent]:
        """An assistant that has to be signed in by the person."""
        redirected: list[str] = []

        async def open_browser(url: str) -> None:
            redirected.append(await person(url))

        async def called_back() -> AuthorizationCodeResult:
            found = dict(parse_qsl(urlsplit(redirected[-1]).query))
            return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))

        metadata = OAuthClientMetadata(
            client_name="Test assistant",
            redirect_uris=[AnyUrl(CALLBACK)],
            token_endpoint_auth_method="none",
        )
        auth = OAuthClientProvider(f"{self.url}/mcp", metadata, memory or Memory(), open_browser, called_back)
        async with (
            httpx2.AsyncClient(auth=auth, timeout=60.0) as http,
            Client(streamable_http_client(f"{self.url}/mcp", http_client=http)) as client,
        ):
            yield Agent(client)


def logged(directory: Path) -> str:
    """Everything that the processes and the proxy wrote."""
    return "".join(log.read_text(errors="replace") for log in directory.rglob("*.log"))


@pytest.fixture
async def fleet(redis_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A front of two processes whose people sign in."""
    host = SandboxHost("here.test")
    host.control.create_address("@ann@here.test")
    key = host.control.create_key("@ann@here.test")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with serve(host) as api_url:
        env = {
            "FMSG_API_URL": api_url,
            "FMSG_REDIS_URL": redis_url,
            "FMSG_SEAL_KEY": SealKeys.generate(),
            "FMSG_MCP_PUBLIC_URL": url,
            "FMSG_METRICS_PORT": "0",
        }
        async with AsyncExitStack() as stack:

            async def front(name: str, *arguments: str) -> int:
                child = await Child.start(name, "front", *arguments, env=env, log_dir=tmp_path)
                stack.push_async_callback(child.stop)
                (announced,) = await child.announcement("mcp_url")
                return urlsplit(announced["mcp_url"]).port or 0

            if find_proxy() is None:
                await front("front", "--port", str(port), "--workers", "2")
            else:
                ports = [await front(f"front-{number}", "--port", "0") for number in (1, 2)]
                await stack.enter_async_context(in_front_of(ports, tmp_path / "proxy", port=port))
            yield Fleet(url, host, key)
    assert key not in logged(tmp_path)


def by_form(key: str, *, rights: str = "fmsg:write") -> Person:
    """Somebody with a browser without JavaScript; each step on a connection, and so perhaps a process, of its own."""

    async def person(url: str) -> str:
        cookies = httpx2.Cookies()

        async def step(method: str, where: str, **more: Any) -> httpx2.Response:
            async with httpx2.AsyncClient(cookies=cookies) as http:
                answer = await http.request(method, where, **more)
                cookies.update(http.cookies)
                return answer

        origin = "{0.scheme}://{0.netloc}".format(urlsplit(url))
        page = await step("GET", url)
        page = await step("POST", f"{origin}/oauth/sign-in", data={**fields(page.text), "key": key})
        form = {**fields(page.text), "rights": rights, "decision": "allow"}
        return (await step("POST", f"{origin}/oauth/consent", data=form)).headers["location"]

    return person


async def test_an_assistant_is_signed_in_and_acts(fleet: Fleet) -> None:
    memory = Memory()
    async with fleet.assistant(by_form(fleet.key), memory=memory) as assistant:
        for _ in range(6):
            assert (await assistant.call("whoami"))["address"] == "@ann@here.test"
        sent = await assistant.call("send_message", to=["@ann@here.test"], topic="note", body="to myself")
        assert sent["id"]
    assert memory.tokens is not None
    assert fleet.key not in memory.tokens.model_dump_json()

    # Another session goes on with what the assistant kept, and nobody is asked.
    async def nobody(url: str) -> str:
        raise AssertionError(f"asked again at {url}")

    async with fleet.assistant(nobody, memory=memory) as assistant:
        assert (await assistant.call("whoami"))["address"] == "@ann@here.test"


async def test_an_assistant_that_may_only_read_is_shown_what_reads(fleet: Fleet) -> None:
    async with fleet.assistant(by_form(fleet.key, rights="fmsg:read")) as assistant:
        tools = {tool.name for tool in (await assistant.client.list_tools()).tools}
        assert {"whoami", "list_messages", "wait_for_message"} <= tools
        assert not tools & {"send_message", "reply", "add_recipients", "react"}
        assert (await assistant.call("whoami"))["address"] == "@ann@here.test"


async def test_a_call_beyond_the_grant_is_answered_with_what_to_ask_for(fleet: Fleet) -> None:
    memory = Memory()
    async with fleet.assistant(by_form(fleet.key, rights="fmsg:read"), memory=memory):
        pass
    assert memory.tokens is not None
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    sent = {**call, "params": {"name": "send_message", "arguments": {"to": ["@ann@here.test"], "body": "x"}}}
    headers = {"authorization": f"Bearer {memory.tokens.access_token}", "accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(headers=headers) as http:
        answer = await http.post(f"{fleet.url}/mcp", json=sent)
    assert answer.status_code == 403
    challenge = answer.headers["www-authenticate"]
    assert 'error="insufficient_scope"' in challenge
    assert 'scope="fmsg:read fmsg:write"' in challenge
    assert "resource_metadata=" in challenge
    assert not fleet.host.core.state.messages


async def test_a_request_without_a_token_is_told_where_to_sign_in(fleet: Fleet) -> None:
    async with httpx2.AsyncClient() as http:
        answer = await http.post(f"{fleet.url}/mcp", json={})
        assert answer.status_code == 401
        found = re.search(r'resource_metadata="([^"]+)"', answer.headers["www-authenticate"])
        assert found is not None
        document = (await http.get(found[1])).json()
        assert document["resource"] == f"{fleet.url}/mcp"
        made_up = {"authorization": "Bearer fmsgo_bWFkZSB1cA"}
        refused = await http.post(f"{fleet.url}/mcp", json={}, headers=made_up)
        assert refused.status_code == 401
        assert 'error="invalid_token"' in refused.headers["www-authenticate"]
        # API keys work as before.
        listed = await http.post(
            f"{fleet.url}/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
            headers={"authorization": f"Bearer {fleet.key}", "accept": "application/json, text/event-stream"},
        )
        assert listed.status_code == 200


async def test_what_the_host_revokes_ends_the_sign_in(fleet: Fleet) -> None:
    memory = Memory()
    async with fleet.assistant(by_form(fleet.key), memory=memory) as assistant:
        await assistant.call("whoami")
        fleet.host.control.revoke_key(fleet.key)
        with pytest.raises(ToolFailed, match=r"revoked|invalid"):
            await assistant.call("list_messages")


async def test_guessed_keys_on_the_page_use_up_the_same_budget(fleet: Fleet) -> None:
    async with httpx2.AsyncClient() as http:
        asked = {"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none"}
        client_id = (await http.post(f"{fleet.url}/oauth/register", json=asked)).json()["client_id"]
        wanted = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": CALLBACK,
            "code_challenge": "c" * 43,
            "code_challenge_method": "S256",
        }
        page = await http.get(f"{fleet.url}/oauth/authorize", params=wanted)
        statuses = []
        for number in range(70):
            guess = {**fields(page.text), "key": f"fmsgk_Z3Vlc3M_{number:08d}"}
            statuses.append((await http.post(f"{fleet.url}/oauth/sign-in", data=guess)).status_code)
        # Thirty a minute and process, of which there are two.
        assert statuses.count(403) <= 60
        assert statuses[-1] == 429


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH: install the package chromium to see the pages tried")
async def test_a_person_signs_in_with_a_browser(fleet: Fleet, tmp_path: Path) -> None:
    """With the keyboard alone, on a phone's screen, without JavaScript."""
    from playwright.async_api import async_playwright

    problems: list[str] = []

    async def person(url: str) -> str:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
            )
            context = await browser.new_context(
                viewport={"width": 390, "height": 844}, color_scheme="dark", java_script_enabled=False
            )
            page = await context.new_page()
            page.on("console", lambda message: problems.append(message.text))
            await page.goto(url)
            await page.screenshot(path=tmp_path / "sign-in.png")
            await page.keyboard.type("fmsgk_d3Jvbmc_d3Jvbmc")  # the field has the focus
            await page.keyboard.press("Enter")
            await page.get_by_role("alert").wait_for()
            await page.get_by_label("fmsg API key").fill(fleet.key)
            await page.keyboard.press("Enter")
            await page.get_by_text("@ann@here.test").wait_for()
            await page.screenshot(path=tmp_path / "consent.png")
            width = await page.get_by_role("main").bounding_box()
            assert width is not None
            assert width["width"] <= 390
            back: asyncio.Future[str] = asyncio.get_running_loop().create_future()

            def sent_back(request: Any) -> None:
                if request.url.startswith(CALLBACK) and not back.done():
                    back.set_result(request.url)

            page.on("request", sent_back)
            await page.get_by_role("button", name="Allow").press("Enter", no_wait_after=True)
            async with asyncio.timeout(20):
                location = await back
            await browser.close()
            return location

    async with fleet.assistant(person) as assistant:
        assert (await assistant.call("whoami"))["address"] == "@ann@here.test"
    assert not [text for text in problems if "Content Security Policy" in text], problems
