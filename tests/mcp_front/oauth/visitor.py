"""A client, a person and a browser around the authorization server, in one process."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2

from ledger.memory import MemoryDocuments
from ledger.seal import SealKeys
from mcp_front.http.admission import Refused
from mcp_front.oauth.app import SignIn
from mcp_front.settings import OAuthSettings

ISSUER = "https://mcp.example.com"
RESOURCE = f"{ISSUER}/mcp"
REDIRECT = "https://app.example.net/callback?kind=fmsg"
KEY = "fmsgk_QUJD_c2VjcmV0Lys9"
ADDRESS = "@ann@here.test"
SEAL_KEY = SealKeys.generate()


class Clock:
    """POSIX seconds that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s


class Fixture:
    """A front's authorization server, its store, and what the host says of keys."""

    def __init__(self, *, fetch: Any = None, **settings: Any) -> None:
        self.clock = Clock()
        self.documents = MemoryDocuments(clock=self.clock)
        self.keys: dict[str, str] = {KEY: ADDRESS}
        self.looked_up: list[str] = []
        self.settings = OAuthSettings(public_url=ISSUER, **{"client_metadata_hosts": ("claude.ai",), **settings})
        self.fetch = fetch
        self.sign_in = self.replica()

    def replica(self, *, seal_key: str = SEAL_KEY, issuer: str = ISSUER) -> SignIn:
        """Another front over the same store."""

        async def identify(scope: Any, api_key: str) -> str:
            self.looked_up.append(api_key)
            if api_key not in self.keys:
                raise Refused(401, "The fmsg host does not accept this API key.", reason="key_refused")
            return self.keys[api_key]

        return SignIn(
            OAuthSettings(public_url=issuer, client_metadata_hosts=self.settings.client_metadata_hosts),
            SealKeys.parse(seal_key),
            self.documents,
            endpoint="/mcp",
            identify=identify,
            clock=self.clock,
            fetch=self.fetch,
        )

    @asynccontextmanager
    async def browser(self, sign_in: SignIn | None = None) -> AsyncIterator[httpx2.AsyncClient]:
        """A browser, or any HTTP client, that keeps cookies and follows nothing by itself."""
        transport = httpx2.ASGITransport(app=sign_in or self.sign_in)
        async with httpx2.AsyncClient(transport=transport, base_url=ISSUER, follow_redirects=False) as client:
            yield client


def pkce() -> tuple[str, str]:
    """A verifier and its challenge (RFC 7636)."""
    verifier = secrets.token_urlsafe(48)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    return verifier, challenge


async def registered(http: httpx2.AsyncClient, **more: Any) -> dict[str, Any]:
    """A registered public client."""
    asked = {"redirect_uris": [REDIRECT], "client_name": "Helper", "token_endpoint_auth_method": "none", **more}
    answer = await http.post("/oauth/register", json=asked)
    assert answer.status_code == 201, answer.text
    body = answer.json()
    assert isinstance(body, dict)
    return body


def question(client_id: str, challenge: str, **more: str) -> dict[str, str]:
    """An authorization request."""
    return {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": REDIRECT,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "state": "st&te",
        "resource": RESOURCE,
        **more,
    }


def fields(page: str) -> dict[str, str]:
    """The hidden fields of a page's form."""
    return {
        unescape(name): unescape(value)
        for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page)
    }


def query(location: str) -> dict[str, str]:
    """The parameters of a redirect."""
    return dict(parse_qsl(urlsplit(location).query))


async def consented(
    http: httpx2.AsyncClient,
    asked: Mapping[str, str],
    *,
    key: str = KEY,
    rights: str = "fmsg:write",
    decision: str = "allow",
) -> dict[str, str]:
    """What the client gets in the redirect after a person went through the pages."""
    page = await http.get("/oauth/authorize", params=asked)
    assert page.status_code == 200, page.text
    page = await http.post("/oauth/sign-in", data={**fields(page.text), "key": key})
    assert page.status_code == 200, page.text
    done = await http.post("/oauth/consent", data={**fields(page.text), "rights": rights, "decision": decision})
    assert done.status_code == 303, done.text
    return query(done.headers["location"])


async def signed_in(http: httpx2.AsyncClient, **more: Any) -> tuple[str, dict[str, Any]]:
    """The id of a client and its tokens, all the way."""
    client_id = (await registered(http))["client_id"]
    verifier, challenge = pkce()
    found = await consented(http, question(client_id, challenge), **more)
    answer = await http.post("/oauth/token", data=redemption(client_id, found["code"], verifier))
    assert answer.status_code == 200, answer.text
    return client_id, answer.json()


def redemption(client_id: str, code: str, verifier: str, **more: str) -> dict[str, str]:
    """A token request for a code."""
    return {
        "grant_type": "authorization_code",
        "client_id": client_id,
        "code": code,
        "code_verifier": verifier,
        "redirect_uri": REDIRECT,
        "resource": RESOURCE,
        **more,
    }


def renewal(client_id: str, token: str, **more: str) -> dict[str, str]:
    """A token request for a refresh token."""
    return {"grant_type": "refresh_token", "client_id": client_id, "refresh_token": token, **more}
