"""Signing in, as a client finds it: the public URL, the two metadata documents, the pages, and the clocks."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp

from mcp_front.settings import OAuthSettings
from ops.doctor.findings import Check, Finding, Trouble

FETCH_S = 10.0
"""A client's own deadline is of this kind."""
MAX_DOCUMENT_BYTES = 64 * 1024
CLOCKS_APART_S = 30.0
"""A code lives for a minute: clocks half of that apart lose sign-ins."""
FORWARD = "Have the proxy pass /oauth/ and /.well-known/oauth-* on, as the files in ops/deploy/proxies do."


class SignInChecks:
    """Checks of one public URL. ``clock`` gives POSIX seconds; the last answer's clock is compared with it."""

    def __init__(self, oauth: OAuthSettings, *, endpoint: str, clock: Callable[[], float] = time.time) -> None:
        self._url = oauth.public_url
        self._endpoint = endpoint
        self._clock = clock
        self._ahead_s: float | None = None

    async def run(self) -> AsyncIterator[Finding]:
        """The findings, in order."""
        async with aiohttp.ClientSession(trust_env=True) as session:
            resource = f"{self._url}{self._endpoint}"
            path = f"/.well-known/oauth-protected-resource{self._endpoint}"
            yield await self._document(session, path, "resource", resource)
            yield await self._document(session, "/.well-known/oauth-authorization-server", "issuer", self._url)
            yield await self._pages(session)
        yield await self._clocks()

    async def _document(self, session: aiohttp.ClientSession, path: str, field: str, wanted: str) -> Finding:
        async def work() -> None:
            status, body = await self._get(session, path)
            if status != 200:
                raise Trouble(f"{status}", _advice(status), outage=status in (502, 503, 504))
            try:
                found: Any = json.loads(body)
            except ValueError:
                raise Trouble("an answer that is no JSON", FORWARD) from None
            value = found.get(field) if isinstance(found, dict) else None
            if value != wanted:
                raise Trouble(
                    f"its {field} is {value!r}, and clients expect {wanted!r}",
                    "Give every front the same FMSG_MCP_PUBLIC_URL and FMSG_MCP_PATH, and restart them.",
                )

        check = Check(name="sign-in", tried=f"read {self._url}{path}", within_s=FETCH_S, late=_advice(504))
        finding, _ = await check.run(work, lambda _: f"{field} is {wanted}")
        return finding

    async def _pages(self, session: aiohttp.ClientSession) -> Finding:
        async def work() -> None:
            status, _ = await self._get(session, "/oauth/style.css")
            if status != 200:
                raise Trouble(f"{status}", _advice(status), outage=status in (502, 503, 504))

        check = Check(
            name="sign-in", tried=f"reach the pages at {self._url}/oauth/", within_s=FETCH_S, late=_advice(504)
        )
        finding, _ = await check.run(work, lambda _: "they are served")
        return finding

    async def _clocks(self) -> Finding:
        async def work() -> float:
            if self._ahead_s is None:
                raise Trouble("no answer said its time", "See above.", level="skipped")
            if abs(self._ahead_s) > CLOCKS_APART_S:
                raise Trouble(
                    f"this machine's and the answering one's are {abs(self._ahead_s):.0f} s apart",
                    "Keep the clocks of all machines in step (NTP): codes and tokens are judged by the clock of "
                    "whichever front is asked.",
                )
            return self._ahead_s

        check = Check(name="sign-in", tried="compare clocks", within_s=FETCH_S, late="")
        finding, _ = await check.run(work, lambda apart_s: f"within {max(1.0, abs(apart_s)):.0f} s of each other")
        return finding

    async def _get(self, session: aiohttp.ClientSession, path: str) -> tuple[int, bytes]:
        try:
            async with session.get(f"{self._url}{path}", allow_redirects=False) as answer:
                body = await answer.content.read(MAX_DOCUMENT_BYTES)
                if said := answer.headers.get("Date"):
                    try:
                        self._ahead_s = parsedate_to_datetime(said).timestamp() - self._clock()
                    except ValueError:
                        self._ahead_s = None
                return answer.status, body
        except (aiohttp.ClientError, OSError) as error:
            do = "Check FMSG_MCP_PUBLIC_URL, its name, its certificate, and that proxy and front run."
            raise Trouble(f"no answer ({type(error).__name__}: {error})", do, outage=True) from None


def _advice(status: int) -> str:
    if 300 <= status < 400:
        return "A redirect: set FMSG_MCP_PUBLIC_URL to the URL it leads to."
    if status == 421:
        return "Add the public host name to FMSG_MCP_ALLOWED_HOSTS of the fronts."
    if status in (502, 503, 504):
        return "The proxy finds no front that answers: look whether they run."
    return FORWARD
