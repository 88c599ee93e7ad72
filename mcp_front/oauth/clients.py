"""Who may ask for a sign-in: clients that registered (RFC 7591), and clients whose id is the URL of their metadata."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
import socket
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from mcp.server.auth.provider import RegistrationError
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl, ValidationError

from mcp_front.oauth.sealed import SCOPES, Registration, Sealer

CLIENT_PREFIX = "fmsgc_"
"""Ids of registered clients begin so."""
NATIVE_SCHEMES = frozenset({"cursor", "vscode", "vscode-insiders", "windsurf"})
"""Redirect schemes of editors that take no loopback port. Others are refused: a scheme can run script."""
MAX_REDIRECT_URIS = 10
MAX_URI_CHARS = 512
MAX_NAME_CHARS = 80
"""The name stands on the page that asks for consent; a longer one could push the rest of the page out of sight."""
MAX_DOCUMENT_BYTES = 5 * 1024
"""Of a client metadata document (draft-ietf-oauth-client-id-metadata-document recommends this bound)."""
FETCH_S = 5.0
"""A person waits for the page meanwhile."""
MAX_FETCHING = 8
"""At once: anybody may name any URL of a listed host."""
MAX_CACHED = 1_000
DEFAULT_AGE_S = 300.0
"""How long a document is believed whose headers do not say."""
MAX_AGE_S = 86_400.0
FAILED_AGE_S = 30.0
"""How long a document that could not be had is not asked for again."""

_HOST = re.compile(r"[a-z0-9._:-]+", re.ASCII)
"""A name or an address. It stands in the pages' Content-Security-Policy."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_MAX_AGE = re.compile(r"\bmax-age=(\d{1,9})\b")


class UnknownClient(Exception):
    """A client id that stands for nobody. The text says what was wrong with it, for the person on the page."""


def redirect_problem(uri: str) -> str | None:
    """Why a redirect URI is not taken; None where it is (MCP authorization: HTTPS or loopback; RFC 8252)."""
    if len(uri) > MAX_URI_CHARS:
        return f"it is longer than {MAX_URI_CHARS} characters"
    if not uri.isascii() or any(character <= " " or character in '"<>\\^`{|}\x7f' for character in uri):
        return "it holds a character that does not belong into a URI"
    try:
        parts = urlsplit(uri)
        host, _port = parts.hostname, parts.port
    except ValueError:
        return "it cannot be read"
    if parts.fragment or uri.endswith("#"):
        return "it has a fragment"
    if "@" in parts.netloc:
        return "it holds a user name"
    if parts.scheme in NATIVE_SCHEMES:
        return None
    if not host or not _HOST.fullmatch(host):
        return "it has no host, or one that is no name"
    if parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK):
        return None
    return "it is neither https nor http on loopback"


def same_redirect(registered: str, asked: str) -> bool:
    """Whether a redirect URI is a registered one: equal, but for the port on loopback (RFC 8252, 7.3)."""
    if registered == asked:
        return True
    try:
        ours, theirs = urlsplit(registered), urlsplit(asked)
        if ours.scheme != "http" or ours.hostname not in _LOOPBACK or redirect_problem(asked):
            return False
        return (ours.hostname, ours.path, ours.query) == (theirs.hostname, theirs.path, theirs.query) and (
            theirs.scheme == "http"
        )
    except ValueError:
        return False


class OAuthClient(msgspec.Struct, frozen=True, kw_only=True):
    """A client that may ask for a sign-in."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    auth_method: str
    secret: str | None = None
    verified_host: str | None = None
    """The host that answers for the name: known of clients whose id is a URL, and of no other."""

    def redirect(self, asked: str | None) -> str | None:
        """The redirect URI to use; None where it is not one of the client's."""
        if asked is None:
            return self.redirect_uris[0] if len(self.redirect_uris) == 1 else None
        return asked if any(same_redirect(registered, asked) for registered in self.redirect_uris) else None

    def full(self) -> OAuthClientInformationFull:
        """As the SDK's client authentication wants it."""
        return OAuthClientInformationFull(
            client_id=self.id,
            client_name=self.name,
            client_secret=self.secret,
            redirect_uris=[AnyUrl(uri) for uri in self.redirect_uris],
            token_endpoint_auth_method=self.auth_method,
            scope=" ".join(SCOPES),
        )


class Clients:
    """The clients of one front. ``clock`` gives POSIX seconds."""

    def __init__(
        self,
        sealer: Sealer,
        *,
        clock: Callable[[], float],
        metadata_hosts: Sequence[str],
        fetch: Callable[[str], Any] | None = None,
    ) -> None:
        self._sealer = sealer
        self._clock = clock
        self._hosts = frozenset(host.lower() for host in metadata_hosts)
        self._fetch = fetch or fetch_document
        self._documents: OrderedDict[str, tuple[float, OAuthClient | str]] = OrderedDict()
        self._fetching: dict[str, asyncio.Task[OAuthClient | str]] = {}

    @property
    def takes_urls(self) -> bool:
        """Whether a client id may be the URL of a metadata document."""
        return bool(self._hosts)

    def register(self, asked: OAuthClientInformationFull) -> None:
        """Give a registration its id, which holds it (RFC 7591). Raises `RegistrationError`."""
        uris = tuple(str(uri) for uri in asked.redirect_uris or ())
        if not uris or len(uris) > MAX_REDIRECT_URIS:
            raise RegistrationError("invalid_redirect_uri", f"Give 1 to {MAX_REDIRECT_URIS} redirect URIs.")
        for uri in uris:
            if problem := redirect_problem(uri):
                raise RegistrationError("invalid_redirect_uri", f"A redirect URI is not taken: {problem}.")
        if asked.token_endpoint_auth_method not in ("none", "client_secret_post", "client_secret_basic"):
            raise RegistrationError("invalid_client_metadata", "That token_endpoint_auth_method is not supported.")
        name = shown_name(asked.client_name)
        registration = Registration(
            name=name,
            redirect_uris=uris,
            auth_method=asked.token_endpoint_auth_method,
            secret=asked.client_secret,
            issued_at_s=int(self._clock()),
        )
        asked.client_id = CLIENT_PREFIX + self._sealer.seal(registration)
        asked.client_name = name
        asked.client_id_issued_at = registration.issued_at_s

    async def get(self, client_id: str) -> OAuthClient:
        """The client of an id. Raises `UnknownClient`."""
        if client_id.startswith(CLIENT_PREFIX):
            found = self._sealer.open(client_id.removeprefix(CLIENT_PREFIX), Registration)
            if found is None:
                raise UnknownClient("The client is not registered here. It has to register once more.")
            return OAuthClient(
                id=client_id,
                name=found.name,
                redirect_uris=found.redirect_uris,
                auth_method=found.auth_method,
                secret=found.secret,
            )
        if client_id.startswith("https://"):
            return await self._described(client_id)
        raise UnknownClient("The client id is none that this server gave out.")

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        """The same as the SDK's client authentication asks it: None where there is none."""
        try:
            return (await self.get(client_id)).full()
        except UnknownClient:
            return None

    async def _described(self, url: str) -> OAuthClient:
        problem = self._url_problem(url)
        if problem:
            raise UnknownClient(problem)
        cached = self._documents.get(url)
        if cached is None or cached[0] <= self._clock():
            task = self._fetching.get(url)
            if task is None and len(self._fetching) >= MAX_FETCHING:
                raise UnknownClient("The metadata of too many clients is being fetched. Try again in a moment.")
            if task is None:
                # Ends within `FETCH_S`; everybody who asks for the same client meanwhile shares it.
                task = self._fetching[url] = asyncio.get_running_loop().create_task(self._read(url))
                task.add_done_callback(lambda _done: self._fetching.pop(url, None))
            found = await asyncio.shield(task)
        else:
            found = cached[1]
        if isinstance(found, str):
            raise UnknownClient(found)
        return found

    def _url_problem(self, url: str) -> str | None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            return "The client id cannot be read as a URL."
        if host not in self._hosts or port not in (None, 443):
            return "This server does not fetch client metadata from that host. The client can register instead."
        if not parts.path.strip("/") or parts.fragment or "@" in parts.netloc or len(url) > MAX_URI_CHARS:
            return "The client id is a URL, but none of a client metadata document."
        return None

    async def _read(self, url: str) -> OAuthClient | str:
        age_s = FAILED_AGE_S
        found: OAuthClient | str
        try:
            async with asyncio.timeout(FETCH_S):
                body, age_s = await self._fetch(url)
            found = described(url, body)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            reason = str(error) if isinstance(error, DocumentRefused) else "it cannot be fetched now"
            age_s, found = FAILED_AGE_S, f"The client's metadata document is not usable: {reason}."
        self._documents[url] = (self._clock() + age_s, found)
        self._documents.move_to_end(url)
        while len(self._documents) > MAX_CACHED:
            self._documents.popitem(last=False)
        return found


class DocumentRefused(ValueError):
    """A client metadata document that is none. The text says why."""


def described(url: str, body: bytes) -> OAuthClient:
    """The client that a metadata document describes. Raises `DocumentRefused`."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise DocumentRefused("it is not JSON") from None
    if not isinstance(document, dict) or document.get("client_id") != url:
        raise DocumentRefused("its client_id is not its own URL")
    try:
        metadata = OAuthClientInformationFull.model_validate(document)
    except ValidationError:
        raise DocumentRefused("its fields are not those of a client") from None
    uris = tuple(uri for uri in document.get("redirect_uris") or () if isinstance(uri, str))
    if not uris or len(uris) > MAX_REDIRECT_URIS * 5 or any(redirect_problem(uri) for uri in uris):
        raise DocumentRefused("its redirect_uris are not usable")
    if metadata.client_secret or (metadata.token_endpoint_auth_method or "none") != "none":
        # Anybody can read the document, so there is no secret to share; signed assertions are not supported.
        raise DocumentRefused("it asks for an authentication of the client that is not supported")
    return OAuthClient(
        id=url,
        name=shown_name(metadata.client_name),
        redirect_uris=uris,
        auth_method="none",
        verified_host=urlsplit(url).hostname,
    )


def shown_name(name: str | None) -> str:
    """A client's name as the page shows it: one line, of letters that cannot turn the text around."""
    plain = "".join(character for character in name or "" if character.isprintable())
    return " ".join(plain.split())[:MAX_NAME_CHARS] or "A client without a name"


class PublicResolver(AbstractResolver):
    """Resolves names to public addresses only, so that a document's URL never leads into the operator's own network."""

    def __init__(self) -> None:
        self._inner = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises `OSError` where a name has any address that is not public."""
        found = await self._inner.resolve(host, port, family)
        if not found or any(not ipaddress.ip_address(item["host"]).is_global for item in found):
            raise OSError("the name does not lead to the public internet")
        return found

    async def close(self) -> None:
        """Nothing is held."""
        await self._inner.close()


async def fetch_document(url: str) -> tuple[bytes, float]:
    """A client metadata document and how long it may be believed, in seconds: over TLS, without redirects, bounded."""
    connector = aiohttp.TCPConnector(resolver=PublicResolver(), limit=1)
    async with (
        aiohttp.ClientSession(connector=connector, auto_decompress=False) as session,
        session.get(
            url, allow_redirects=False, headers={"Accept": "application/json", "Accept-Encoding": "identity"}
        ) as answer,
    ):
        if answer.status != 200:
            raise DocumentRefused(f"its host answered {answer.status}")
        body = b""
        async for chunk in answer.content.iter_chunked(MAX_DOCUMENT_BYTES + 1):
            body += chunk
            if len(body) > MAX_DOCUMENT_BYTES:
                raise DocumentRefused(f"it is larger than {MAX_DOCUMENT_BYTES} bytes")
        return body, document_age_s(answer.headers.get("Cache-Control", ""))


def document_age_s(cache_control: str) -> float:
    """How long a document may be believed, by its Cache-Control (RFC 9111)."""
    said = cache_control.lower()
    if "no-store" in said or "no-cache" in said:
        return 0.0
    match = _MAX_AGE.search(said)
    return min(MAX_AGE_S, float(match[1])) if match else DEFAULT_AGE_S
