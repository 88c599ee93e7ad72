"""The way to the fmsg host: name, connection, TLS, the Web API, its clock, the key, the event socket. Sends nothing."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

import aiohttp

from fmsg.answers import host_time_s
from fmsg.errors import (
    CredentialMissing,
    FmsgError,
    Forbidden,
    HostFailed,
    HostMisbehaved,
    HostRefused,
    HostUnreachable,
    NotFound,
    Throttled,
    Transient,
    Unauthorized,
)
from fmsg.http import HostHttp
from fmsg.reference import format_reference
from fmsg.tokens import AccessToken, FixedTokens, exchange
from fmsg.webapi import WebApi
from mcp_front.http.admission import API_KEY_PREFIX
from ops.doctor.findings import Check, Finding, Trouble

LOOKUP_S = 5.0
"""A resolver answers in milliseconds. Its second server is asked after 5 s."""

CONNECT_S = 10.0
"""TCP and TLS: a lost packet is repeated after 1, 3 and 7 s."""

ANSWER_S = 15.0
"""One request, or a socket that opens. Callers give up soon after that."""

SOCKET_HELD_S = 1.0
"""A socket that a proxy cannot carry is closed at once, if it opens at all."""

SKEW_S = 5.0
"""Difference of clocks worth a warning: the host's Date is cut to the second and comes with a delay."""

EXPIRES_SOON_S = 14 * 86_400.0
"""A certificate is renewed a month before it expires. Two weeks before, the renewal is broken."""


class HostChecks:
    """The checks of one host. Each is made only if the one before it went well."""

    def __init__(
        self,
        http: HostHttp,
        *,
        api_key: str | None,
        no_key: str = "no API key is given",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``http`` is open. ``no_key`` says why there is no key and how to give one."""
        self._http = http
        self._url = urlsplit(http.api_url)
        self._host = self._url.hostname or ""
        self._port = self._url.port or (443 if self._url.scheme == "https" else 80)
        self._key = api_key
        self._no_key = no_key
        self._clock = clock

    async def run(self) -> AsyncIterator[Finding]:
        """All lines, in order."""
        found, addresses = await self._lookup()
        yield found
        if addresses is None:
            return
        found, connected = await self._connection()
        yield found
        if connected is None:
            return
        found, date_s = await self._api()
        yield found
        if found.level == "failure":
            return
        yield await self._clock_skew(date_s)
        async for found in self._as_caller():
            yield found

    async def _lookup(self) -> tuple[Finding, list[str] | None]:
        check = Check(
            name="dns",
            tried=f"look {self._host} up",
            within_s=LOOKUP_S,
            late="The resolver does not answer: look at /etc/resolv.conf and the network.",
        )
        return await check.run(lambda: lookup(self._host, self._port), ", ".join)

    async def _connection(self) -> tuple[Finding, str | None]:
        secure = self._url.scheme == "https"
        check = Check(
            name="tls" if secure else "connection",
            tried=f"connect to {self._host} port {self._port}" + (" with TLS" if secure else ", in cleartext"),
            within_s=CONNECT_S,
            late="Nothing answers there: a firewall drops the packets, or address or port are wrong.",
        )
        return await check.run(self._connect if secure else self._connect_plain, str)

    async def _connect_plain(self) -> str:
        try:
            _, writer = await asyncio.open_connection(self._host, self._port)
        except OSError as error:
            raise _not_connected(error) from None
        writer.close()
        return "connected"

    async def _connect(self) -> str:
        try:
            _, writer = await asyncio.open_connection(self._host, self._port, ssl=ssl.create_default_context())
        except ssl.SSLCertVerificationError as error:
            do = "Install the full chain on the host, or the CA here (SSL_CERT_FILE); check the name and both clocks."
            raise Trouble(f"its certificate is not accepted: {error.verify_message}", do) from None
        except ssl.SSLError as error:
            do = "Is that a TLS port? Check FMSG_API_URL, and that the host offers TLS 1.2 or later."
            raise Trouble(f"TLS fails: {error.reason or error}", do) from None
        except OSError as error:
            raise _not_connected(error) from None
        try:
            link: ssl.SSLObject = writer.get_extra_info("ssl_object")
            certificate = link.getpeercert() or {}
            left_s = ssl.cert_time_to_seconds(str(certificate["notAfter"])) - self._clock()
            came = f"{link.version()}, certificate good for {left_s / 86_400:.0f} days"
        finally:
            writer.close()
        if left_s < EXPIRES_SOON_S:
            raise Trouble(
                came, "Find out why it was not renewed: once it has expired nothing gets through.", level="warning"
            )
        return came

    async def _api(self) -> tuple[Finding, float | None]:
        check = Check(
            name="api",
            tried=f"GET {self._http.api_url}/fmsg without a credential",
            within_s=ANSWER_S,
            late="The host accepts connections and does not answer: look at the host, or at the proxy before it.",
        )
        skews: list[float | None] = []

        async def work() -> str:
            came, skew_s = await self._ask()
            skews.append(skew_s)
            return came

        found, _ = await check.run(work, str)
        return found, skews[0] if skews else None

    async def _ask(self) -> tuple[str, float | None]:
        """What came of an unauthorized request, and how far the host's clock is ahead of ours."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with (
                aiohttp.ClientSession(trust_env=False) as session,
                session.get(f"{self._http.api_url}/fmsg", allow_redirects=False) as answer,
            ):
                status, date_s = answer.status, host_time_s(answer.headers)
                location = answer.headers.get("Location", "")
        except aiohttp.ClientError as error:
            do = "Check that FMSG_API_URL is the Web API's base URL, and that no other service has the port."
            raise Trouble(f"no HTTP answer ({type(error).__name__}: {error})", do) from None
        took_s = loop.time() - began_s
        # The Date is cut to the second: on average half a second has passed since.
        skew_s = None if date_s is None else date_s + 0.5 - (self._clock() - took_s / 2)
        if status != 401:
            raise _no_api(status, location)
        return f"401 after {took_s * 1000:.0f} ms, as it should be", skew_s

    async def _clock_skew(self, skew_s: float | None) -> Finding:
        check = Check(name="clock", tried="compare the host's Date with our clock", within_s=ANSWER_S, late="")

        async def work() -> str:
            if skew_s is None:
                raise Trouble("the host tells no time", "", level="skipped")
            if abs(skew_s) <= SKEW_S:
                return "they agree to the second" if abs(skew_s) <= 1.5 else f"they differ by {abs(skew_s):.0f} s"
            which = "ahead of" if skew_s > 0 else "behind"
            do = "Let both machines keep time (chrony or systemd-timesyncd): tokens expire by the clock."
            raise Trouble(f"the host is {abs(skew_s):.0f} s {which} us", do, level="warning")

        return (await check.run(work, str))[0]

    async def _as_caller(self) -> AsyncIterator[Finding]:
        exchanged = Check(
            name="token",
            tried="exchange the API key for a token (POST /fmsg/token)",
            within_s=ANSWER_S,
            late="The host does not answer: try again later.",
        )
        identity = Check(
            name="identity", tried="list one message as the key's address", within_s=ANSWER_S, late=exchanged.late
        )
        opened = Check(
            name="socket",
            tried="open the event socket (GET /fmsg/ws)",
            within_s=ANSWER_S,
            late="Let every proxy between here and the host pass WebSocket upgrades for /fmsg/ws.",
        )
        key = self._key
        if key is None:
            for check in (exchanged, identity, opened):
                yield check.skipped(self._no_key)
            return
        outcome = await exchanged.run(lambda: self._exchange(key), self._shown)
        found, token = outcome
        yield found
        if token is None:
            for check in (identity, opened):
                yield check.skipped("there is no token")
            return
        api = WebApi(self._http, FixedTokens(token, clock=self._clock))
        yield (await identity.run(lambda: _list(api, token), str))[0]
        yield (await opened.run(lambda: _open(api), str))[0]

    async def _exchange(self, key: str) -> AccessToken:
        try:
            return await exchange(self._http, key, clock=self._clock, retry_for_s=0.0)
        except Unauthorized as error:
            do = "The key is unknown, revoked or expired. Make a new one at the host."
            if not key.startswith(API_KEY_PREFIX):
                do = f"That is no API key: those begin with {API_KEY_PREFIX}. Copy it again."
            raise Trouble(f"the host answered {error}", do) from None
        except FmsgError as error:
            raise explained(error) from None

    def _shown(self, token: AccessToken) -> str:
        left_s = token.expires_at_s - self._clock()
        return f"it acts as {token.address}; the token is good for {_span(left_s)}"


async def lookup(host: str, port: int) -> list[str]:
    """The addresses of a name. Raises `Trouble`."""
    try:
        return [f"{ipaddress.ip_address(host)} is an address already"]
    except ValueError:
        pass
    loop = asyncio.get_running_loop()
    done: asyncio.Future[list[str]] = loop.create_future()

    def ask() -> None:
        result: list[str] | OSError
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            result = sorted({str(address[0]) for *_, address in found})
        except OSError as error:
            result = error
        with contextlib.suppress(RuntimeError):  # the loop has ended without us
            loop.call_soon_threadsafe(tell, result)

    def tell(result: list[str] | OSError) -> None:
        if done.done():
            return
        if isinstance(result, OSError):
            do = "Check the name for typing errors, and that this machine can resolve names."
            # A resolver that cannot say now may know in a moment. A name that it does not know is wrong.
            outage = result.errno == socket.EAI_AGAIN
            done.set_exception(Trouble(f"it has no address ({result.strerror or result})", do, outage=outage))
        else:
            done.set_result(result)

    # A thread of its own: one from the loop's pool would keep the process from ending while a resolver is silent.
    threading.Thread(target=ask, daemon=True, name="lookup").start()
    return await done


async def _list(api: WebApi, token: AccessToken) -> str:
    try:
        page = await api.list_received(limit=1)
    except FmsgError as error:
        raise explained(error) from None
    newest = f"the newest message is {format_reference(page.messages[0].id)}" if page.messages else "no message yet"
    return f"{token.address}, {newest}"


async def _open(api: WebApi) -> str:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    try:
        async with api.events() as events:
            took_s = loop.time() - began_s
            try:
                async with asyncio.timeout(SOCKET_HELD_S):
                    async for _ in events:
                        return f"open after {took_s * 1000:.0f} ms, and an event came"
            except TimeoutError:
                return f"open after {took_s * 1000:.0f} ms, and it stays open"
            do = "Find out which proxy before the host cuts WebSockets, and look at the host's log."
            raise Trouble(f"it opened and was closed at once: {events.close_reason}", do)
    except HostRefused as error:
        do = "Let every proxy between here and the host pass WebSocket upgrades for /fmsg/ws."
        if isinstance(error, Unauthorized | Forbidden):
            do = "The host accepts the key and refuses its socket: ask the host's operator."
        raise Trouble(f"the host answered {error}", do) from None
    except FmsgError as error:
        raise explained(error) from None


def explained(error: FmsgError) -> Trouble:
    """What an error of the Web API client means to an operator."""
    match error:
        case Unauthorized() | Forbidden():
            do = "The host knows the key and refuses the address: ask the host's operator."
        case NotFound():
            do = "That is not the Web API: correct FMSG_API_URL, a path may be missing."
        case Throttled():
            do = "The host limits requests: try again later, and find out which client sends so many."
        case HostFailed():
            do = "The host is in trouble: look at its log."
        case HostRefused():
            do = "Look at the host's log for the request."
        case HostMisbehaved():
            do = "Check that FMSG_API_URL is the Web API's base URL."
        case HostUnreachable():
            do = "Check the network between here and the host."
        case CredentialMissing():
            do = "Try again."
        case _:
            do = "Report this as a fault of fmsg-mcpd."
    return Trouble(str(error), do, outage=isinstance(error, Transient) and not isinstance(error, HostMisbehaved))


def _not_connected(error: OSError) -> Trouble:
    if isinstance(error, ConnectionRefusedError):
        do = "Nothing listens there: start the host, or correct host and port."
        return Trouble("connection refused", do, outage=True)
    return Trouble(f"no connection ({error.strerror or error})", "Check the network and the address.", outage=True)


def _no_api(status: int, location: str) -> Trouble:
    if 300 <= status < 400:
        return Trouble(
            f"a redirect ({status}) to {location}", "Set FMSG_API_URL to the final address: no credential follows one."
        )
    if status == 404:
        return Trouble("404", "That is not the Web API: correct FMSG_API_URL, a path may be missing.")
    if status >= 500:
        do = "The host, or what is behind the proxy, is in trouble: look at its log."
        return Trouble(f"{status}", do, outage=True)
    if status == 429:
        return Trouble("429", "The host limits requests: find out which client sends so many.", level="warning")
    came = f"{status} instead of 401"
    do = "Is that the Web API? A proxy or firewall may answer in its place."
    return Trouble(came, do, level="failure" if status < 300 else "warning")


def _span(seconds: float) -> str:
    for size_s, unit in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{seconds:.0f} s"
