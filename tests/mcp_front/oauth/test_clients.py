"""Clients: where they may be returned to, and metadata documents that are believed for what they are."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from ledger.seal import SealKeys
from mcp_front.oauth import clients
from mcp_front.oauth.clients import (
    MAX_FETCHING,
    Clients,
    DocumentRefused,
    OAuthClient,
    PublicResolver,
    UnknownClient,
    described,
    document_age_s,
    redirect_problem,
    same_redirect,
)
from mcp_front.oauth.sealed import Sealer
from tests.mcp_front.oauth.visitor import SEAL_KEY, Clock, Fixture, consented, pkce, question, redemption, registered

URL = "https://claude.ai/oauth/client.json"
DOCUMENT = {"client_id": URL, "client_name": "Claude", "redirect_uris": ["https://claude.ai/api/callback"]}


@pytest.mark.parametrize(
    "uri",
    [
        "https://claude.ai/api/mcp/auth_callback",
        "http://localhost:1234/callback",
        "http://127.0.0.1/callback",
        "http://[::1]:9/callback",
        "cursor://anysphere.cursor-retrieval/oauth/callback",
    ],
)
def test_redirects_that_are_taken(uri: str) -> None:
    assert redirect_problem(uri) is None


@pytest.mark.parametrize(
    "uri",
    [
        "http://example.com/callback",
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "https://user@example.com/",
        "https://example.com/#fragment",
        "https://example.com/#",
        "https:///nowhere",
        "https://exa mple.com/",
        "https://example.com/\r\nset-cookie:x",
        "https://[::1/",
        "http://localhost.evil.example/",
        "https://example.com/" + "x" * 600,
        "//example.com/",
        "",
    ],
)
async def test_redirects_that_are_refused(uri: str) -> None:
    assert redirect_problem(uri)
    async with Fixture().browser() as http:
        asked = {"redirect_uris": [uri], "token_endpoint_auth_method": "none"}
        answer = await http.post("/oauth/register", json=asked)
    if answer.status_code == 201:
        # The SDK writes a few of them in their normal form, which is another URI.
        assert not any(map(redirect_problem, answer.json()["redirect_uris"]))
        assert uri not in answer.json()["redirect_uris"]
    else:
        assert answer.json()["error"] in ("invalid_redirect_uri", "invalid_client_metadata")


@pytest.mark.parametrize(
    ("registered_uri", "asked", "same"),
    [
        ("http://127.0.0.1/cb", "http://127.0.0.1:50123/cb", True),
        ("http://localhost:1/cb", "http://localhost:2/cb", True),
        ("http://localhost/cb", "http://127.0.0.1/cb", False),
        ("http://localhost/cb", "http://localhost/other", False),
        ("http://localhost/cb", "https://localhost/cb", False),
        ("http://localhost/cb", "http://localhost:x/cb", False),
        ("http://localhost/cb", "http://user@localhost/cb", False),
        ("https://a.example/cb", "https://a.example:444/cb", False),
        ("https://a.example/cb", "https://a.example/cb/", False),
    ],
)
def test_only_the_port_of_loopback_is_free(registered_uri: str, asked: str, same: bool) -> None:
    assert same_redirect(registered_uri, asked) is same


def test_the_one_redirect_may_be_left_out() -> None:
    one = OAuthClient(id="x", name="x", redirect_uris=("https://a.example/",), auth_method="none")
    two = OAuthClient(id="x", name="x", redirect_uris=("https://a.example/", "https://b.example/"), auth_method="none")
    assert one.redirect(None) == "https://a.example/"
    assert two.redirect(None) is None


class Web:
    """Metadata documents on a pretended web, counting what is fetched."""

    def __init__(self, document: Any = DOCUMENT, *, age_s: float = 60.0) -> None:
        self.body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.age_s = age_s
        self.fetched: list[str] = []
        self.error: Exception | None = None

    async def __call__(self, url: str) -> tuple[bytes, float]:
        self.fetched.append(url)
        if self.error is not None:
            raise self.error
        return self.body, self.age_s


def directory(web: Web, clock: Clock, **more: Any) -> Clients:
    """Clients whose documents come from the pretended web."""
    sealer = Sealer(SealKeys.parse(SEAL_KEY), "https://mcp.example.com/mcp")
    return Clients(sealer, clock=clock, fetch=web, **{"metadata_hosts": ("claude.ai",), **more})


async def test_a_client_whose_id_is_its_document_signs_in() -> None:
    web = Web({**DOCUMENT, "redirect_uris": ["https://app.example.net/callback?kind=fmsg"]})
    fixture = Fixture(fetch=web)
    async with fixture.browser() as http:
        verifier, challenge = pkce()
        page = await http.get("/oauth/authorize", params=question(URL, challenge))
        assert "known to claude.ai" in page.text
        code = (await consented(http, question(URL, challenge)))["code"]
        assert (await http.post("/oauth/token", data=redemption(URL, code, verifier))).status_code == 200
    assert web.fetched == [URL]


async def test_a_document_is_believed_as_long_as_it_says() -> None:
    web, clock = Web(age_s=60.0), Clock()
    known = directory(web, clock)
    for _ in range(3):
        assert (await known.get(URL)).name == "Claude"
    clock.now_s += 61
    await known.get(URL)
    assert len(web.fetched) == 2


async def test_a_document_that_cannot_be_had_is_not_asked_for_at_once_again() -> None:
    web, clock = Web(), Clock()
    web.error = OSError("no route")
    known = directory(web, clock)
    for _ in range(3):
        with pytest.raises(UnknownClient, match="cannot be fetched"):
            await known.get(URL)
    assert len(web.fetched) == 1
    clock.now_s += 31
    web.error = None
    assert (await known.get(URL)).name == "Claude"


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/client.json",
        "https://claude.ai.evil.example/client.json",
        "https://claude.ai:8443/client.json",
        "https://user@claude.ai/client.json",
        "https://claude.ai/",
        "https://claude.ai/c#x",
        "http://claude.ai/client.json",
        "https://[::1/x",
    ],
)
async def test_no_other_url_is_ever_fetched(url: str) -> None:
    web = Web()
    with pytest.raises(UnknownClient):
        await directory(web, Clock()).get(url)
    assert web.fetched == []


async def test_an_operator_may_fetch_none() -> None:
    web = Web()
    known = directory(web, Clock(), metadata_hosts=())
    assert not known.takes_urls
    with pytest.raises(UnknownClient):
        await known.get(URL)
    assert web.fetched == []


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[" * 5000,
        b"[]",
        json.dumps({**DOCUMENT, "client_id": "https://claude.ai/other"}).encode(),
        json.dumps({**DOCUMENT, "redirect_uris": []}).encode(),
        json.dumps({**DOCUMENT, "redirect_uris": ["javascript:x"]}).encode(),
        json.dumps({**DOCUMENT, "redirect_uris": 7}).encode(),
        json.dumps({**DOCUMENT, "token_endpoint_auth_method": "private_key_jwt"}).encode(),
        json.dumps({**DOCUMENT, "client_secret": "shared by all"}).encode(),
    ],
)
def test_a_document_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(DocumentRefused):
        described(URL, body)


@pytest.mark.parametrize(
    ("header", "age_s"),
    [
        ("", clients.DEFAULT_AGE_S),
        ("max-age=90", 90.0),
        ("public, MAX-AGE=90", 90.0),
        ("max-age=999999999", clients.MAX_AGE_S),
        ("no-store, max-age=90", 0.0),
        ("max-age=soon", clients.DEFAULT_AGE_S),
    ],
)
def test_caching_follows_the_headers(header: str, age_s: float) -> None:
    assert document_age_s(header) == age_s


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.8", "169.254.169.254", "::1", "fd00::1", "100.64.0.1"])
async def test_a_name_that_leads_inside_is_not_followed(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    resolver = PublicResolver()

    async def found(*given: Any) -> list[dict[str, Any]]:
        public = {
            "host": "93.184.215.14",
            "hostname": "x",
            "port": 443,
            "family": socket.AF_INET,
            "proto": 0,
            "flags": 0,
        }
        return [public, {**public, "host": address, "family": family}]

    monkeypatch.setattr(resolver._inner, "resolve", found)
    with pytest.raises(OSError, match="public"):
        await resolver.resolve("claude.ai", 443)
    await resolver.close()


async def test_a_registration_of_many_redirects_is_bounded() -> None:
    async with Fixture().browser() as http:
        await registered(http, redirect_uris=[f"https://a.example/{n}" for n in range(10)])
        asked = {"redirect_uris": [f"https://a.example/{n}" for n in range(11)], "token_endpoint_auth_method": "none"}
        assert (await http.post("/oauth/register", json=asked)).status_code == 400


async def test_few_metadata_documents_are_fetched_at_once() -> None:
    answer, all_asked = asyncio.Event(), asyncio.Event()
    fetched: list[str] = []

    async def slow(url: str) -> tuple[bytes, float]:
        fetched.append(url)
        if len(fetched) == MAX_FETCHING:
            all_asked.set()
        await answer.wait()
        raise DocumentRefused("it is none")

    fixture = Fixture(fetch=slow)
    async with fixture.browser() as http, asyncio.TaskGroup() as tasks:

        async def ask(number: int) -> str:
            asked = question(f"https://claude.ai/{number}", "x" * 43)
            return (await http.get("/oauth/authorize", params=asked)).text

        held = [tasks.create_task(ask(number)) for number in range(MAX_FETCHING)]
        await all_asked.wait()
        assert "too many clients" in await ask(MAX_FETCHING)
        assert len(fetched) == MAX_FETCHING
        answer.set()
    assert all("it is none" in page.result() for page in held)
