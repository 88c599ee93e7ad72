"""`ops.doctor.sign_in`: what a client would meet at the public URL, and what to do about it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ledger.seal import SealKeys
from mcp_front.settings import OAuthSettings
from ops.doctor.findings import Finding
from ops.doctor.run import DoctorOptions, examine
from ops.doctor.sign_in import SignInChecks

NOW_S = 1_800_000_000.0


@asynccontextmanager
async def site(change: Mapping[str, Any] | None = None, *, ahead_s: float = 0.0) -> AsyncIterator[str]:
    """A public URL; ``change`` replaces what a path answers: a status, or a document."""
    changes = dict(change or {})

    async def answer(request: web.Request) -> web.Response:
        url = f"http://{request.host}"
        documents: dict[str, Any] = {
            "/.well-known/oauth-protected-resource/mcp": {"resource": f"{url}/mcp"},
            "/.well-known/oauth-authorization-server": {"issuer": url},
            "/oauth/style.css": {},
        }
        found = changes.get(request.path, documents.get(request.path, 404))
        headers = {"Date": formatdate(NOW_S + ahead_s, usegmt=True)}
        if isinstance(found, int):
            return web.Response(status=found, headers={**headers, "Location": "https://elsewhere.example"})
        if isinstance(found, str):
            return web.Response(text=found, headers=headers)
        return web.json_response(found, headers=headers)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


async def findings(url: str) -> list[Finding]:
    """All of them."""
    checks = SignInChecks(OAuthSettings(public_url=url), endpoint="/mcp", clock=lambda: NOW_S)
    return [finding async for finding in checks.run()]


async def test_a_site_that_is_well() -> None:
    async with site() as url:
        assert [finding.level for finding in await findings(url)] == ["ok"] * 4


@pytest.mark.parametrize(
    ("path", "answer", "do", "outage"),
    [
        ("/.well-known/oauth-protected-resource/mcp", 404, "Have the proxy pass", False),
        ("/.well-known/oauth-authorization-server", 502, "finds no front", True),
        ("/.well-known/oauth-authorization-server", 301, "A redirect", False),
        ("/.well-known/oauth-authorization-server", 421, "FMSG_MCP_ALLOWED_HOSTS", False),
        ("/.well-known/oauth-authorization-server", "<html>", "Have the proxy pass", False),
        ("/.well-known/oauth-authorization-server", [1], "the same FMSG_MCP_PUBLIC_URL", False),
        ("/.well-known/oauth-protected-resource/mcp", {"resource": "https://x"}, "the same FMSG_MCP_PUBLIC_URL", False),
        ("/oauth/style.css", 404, "Have the proxy pass", False),
    ],
)
async def test_what_is_wrong_and_what_to_do(path: str, answer: Any, do: str, outage: bool) -> None:
    async with site({path: answer}) as url:
        (failed,) = [finding for finding in await findings(url) if finding.level == "failure"]
    assert do in failed.do
    assert failed.outage is outage


async def test_clocks_apart_are_found() -> None:
    async with site(ahead_s=90.0) as url:
        (failed,) = [finding for finding in await findings(url) if finding.level == "failure"]
    assert "90 s apart" in failed.came
    assert "NTP" in failed.do


async def test_nobody_at_the_public_url() -> None:
    found = await findings("http://127.0.0.1:9")
    assert [finding.level for finding in found] == ["failure"] * 3 + ["skipped"]
    assert all(finding.outage for finding in found[:3])


@pytest.mark.parametrize(
    ("url", "seal", "said"),
    [
        ("http://mcp.example.com", True, "cleartext"),
        ("https://mcp.example.com/mcp", True, "more than a name"),
        ("mcp.example.com", True, "no URL"),
        ("https://mcp.example.com", False, "FMSG_SEAL_KEY"),
    ],
)
async def test_a_public_url_that_cannot_be_served_is_told(url: str, seal: bool, said: str) -> None:
    environ = {"FMSG_API_URL": "https://api.example.com", "FMSG_MCP_PUBLIC_URL": url}
    if seal:
        environ["FMSG_SEAL_KEY"] = SealKeys.generate()
    found = [finding async for finding in examine(DoctorOptions(only=("sign-in",)), environ, role="front")]
    assert [finding.level for finding in found] == ["failure"]
    assert said in found[0].came + found[0].do


async def test_asked_for_by_name_a_missing_url_is_a_failure() -> None:
    found = [finding async for finding in examine(DoctorOptions(only=("sign-in",)), {}, role="front")]
    assert [finding.level for finding in found] == ["failure"]
