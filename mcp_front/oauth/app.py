"""The authorization server's routes: metadata, the pages, and what clients ask (MCP authorization, OAuth 2.1).

Registration and client authentication are the MCP SDK's. The pages and what they lead to are ours: an error has to
reach a person as a page and a client with its issuer (RFC 9207).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.middleware.client_auth import AuthenticationError, ClientAuthenticator
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route, request_response
from starlette.types import ASGIApp

import pages as shared_pages
from ledger.port import Documents
from ledger.seal import SealKeys
from mcp_front.http.admission import Refused
from mcp_front.oauth import pages
from mcp_front.oauth.clients import Clients, OAuthClient, UnknownClient
from mcp_front.oauth.grants import GrantRefused, Grants, GrantsAway, Issued
from mcp_front.oauth.sealed import ACCESS_PREFIX, SCOPES, WRITE, Access, AuthorizationRequest, Sealer, Signed, digest
from mcp_front.settings import OAuthSettings

MAX_FIELDS = 64
"""Of a form or a query; no request has twenty."""
MAX_STATE_BYTES = 2_048
"""It travels in URLs, and the pages carry it along."""
ASKED_S = 900.0
"""A person may take so long to find their key; the page then has to be opened from the client once more."""
SIGNED_S = 300.0
"""From a proven key to consent."""
RETRY_AFTER_S = 5
"""When to come back while the store is away."""

_CHALLENGE = re.compile(r"[A-Za-z0-9\-._~]{43,128}", re.ASCII)
"""RFC 7636, 4.2."""
_NO_STORE = {"cache-control": "no-store", "pragma": "no-cache"}
FORM_TYPE = "application/x-www-form-urlencoded"
_VISITOR_COOKIE = "fmsg-sign-in"
_VISITOR = re.compile(r"[A-Za-z0-9_-]{32}", re.ASCII)


class Identify(Protocol):
    """Asks the host whose key it is, within the budgets that hold for bearer keys."""

    async def __call__(self, scope: Mapping[str, Any], api_key: str) -> str:
        """The address. Raises `mcp_front.http.admission.Refused`."""
        ...


class SignIn:
    """The authorization server of one front. Any replica serves any step: only codes and marks are in the store."""

    def __init__(
        self,
        settings: OAuthSettings,
        keys: SealKeys,
        documents: Documents,
        *,
        endpoint: str,
        identify: Identify,
        clock: Callable[[], float],
        fetch: Callable[[str], Any] | None = None,
    ) -> None:
        """``endpoint`` is the path of the MCP endpoint, ``fetch`` gets a client metadata document."""
        self.issuer = settings.public_url
        self.resource = settings.public_url + endpoint
        """What tokens are for (RFC 8707): the MCP endpoint's URL."""
        sealer = Sealer(keys, self.resource)
        self._sealer = sealer
        self._clock = clock
        self._identify = identify
        self._secure = settings.public_url.startswith("https:")
        self._clients = Clients(
            sealer,
            clock=clock,
            metadata_hosts=settings.client_metadata_hosts,
            fetch=fetch,
        )
        self._grants = Grants(
            sealer, documents, clock=clock, access_s=settings.access_token_s, refresh_s=settings.refresh_token_s
        )
        self._authenticator = ClientAuthenticator(_SdkProvider(self._clients))
        self._resource_metadata = f"{self.issuer}/.well-known/oauth-protected-resource{endpoint}"
        self._app = self._routes(endpoint)

    def serves(self, path: str) -> bool:
        """Whether a path is one of the authorization server's."""
        return path.startswith(("/oauth/", "/.well-known/oauth-"))

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """ASGI."""
        await self._app(scope, receive, send)

    async def access(self, token: str) -> Access | None:
        """What an access token of this server stands for; None for any other text."""
        return await self._grants.access(token) if token.startswith(ACCESS_PREFIX) else None

    def challenge(self, error: str = "", text: str = "") -> bytes:
        """The value of ``WWW-Authenticate``: where to find out how to sign in, and what to ask for (RFC 9728, 5.1)."""
        value = f'Bearer realm="fmsg", resource_metadata="{self._resource_metadata}", scope="{" ".join(SCOPES)}"'
        if error:
            plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "'" for c in text)
            value += f', error="{error}", error_description="{plain}"'
        return value.encode("ascii")

    def _routes(self, endpoint: str) -> Starlette:
        register = RegistrationHandler(
            _SdkProvider(self._clients),
            ClientRegistrationOptions(enabled=True, valid_scopes=list(SCOPES), default_scopes=list(SCOPES)),
        )
        well_known = "/.well-known/oauth-protected-resource"
        resource, server = self._document(self._resource_document()), self._document(self._server_document())
        return Starlette(
            routes=[
                Route(well_known, _open(resource, "GET"), methods=["GET", "OPTIONS"]),
                Route(well_known + endpoint, _open(resource, "GET"), methods=["GET", "OPTIONS"]),
                Route("/.well-known/oauth-authorization-server", _open(server, "GET"), methods=["GET", "OPTIONS"]),
                Route("/oauth/register", _open(_safely(register.handle), "POST"), methods=["POST", "OPTIONS"]),
                Route("/oauth/token", _open(_safely(self._token), "POST"), methods=["POST", "OPTIONS"]),
                Route("/oauth/revoke", _open(_safely(self._revoke), "POST"), methods=["POST", "OPTIONS"]),
                Route("/oauth/authorize", self._authorize, methods=["GET", "POST"]),
                Route(pages.SIGN_IN_PATH, self._sign_in, methods=["POST"]),
                Route(pages.CONSENT_PATH, self._consent, methods=["POST"]),
                Route(pages.STYLE_PATH, _style, methods=["GET"]),
            ]
        )

    def _resource_document(self) -> dict[str, Any]:
        """RFC 9728, 2."""
        return {
            "resource": self.resource,
            "authorization_servers": [self.issuer],
            "scopes_supported": list(SCOPES),
            "bearer_methods_supported": ["header"],
            "resource_name": "fmsg",
        }

    def _server_document(self) -> dict[str, Any]:
        """RFC 8414, 2; RFC 9207, 3; client ID metadata documents."""
        methods = ["none", "client_secret_post", "client_secret_basic"]
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/oauth/authorize",
            "token_endpoint": f"{self.issuer}/oauth/token",
            "registration_endpoint": f"{self.issuer}/oauth/register",
            "revocation_endpoint": f"{self.issuer}/oauth/revoke",
            "scopes_supported": list(SCOPES),
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": methods,
            "revocation_endpoint_auth_methods_supported": methods,
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": self._clients.takes_urls,
        }

    @staticmethod
    def _document(document: Mapping[str, Any]) -> Callable[[Request], Awaitable[Response]]:
        async def show(_request: Request) -> Response:
            return JSONResponse(document, headers={"cache-control": "public, max-age=300"})

        return show

    async def _authorize(self, request: Request) -> Response:
        """RFC 6749, 4.1.1: check the request, then show the page that asks for the key."""
        given = await _fields(request)
        if given is None:
            return self._trouble("The request names a field twice, or cannot be read.")
        try:
            client = await self._clients.get(given.get("client_id", ""))
        except UnknownClient as error:
            return self._trouble(str(error))
        redirect_uri = client.redirect(given.get("redirect_uri"))
        if redirect_uri is None:
            return self._trouble(f"{client.name} asks to return to an address that it did not register.")
        state = given.get("state")
        problem = self._problem(given)
        if problem is not None:
            if client.verified_host is None and urlsplit(redirect_uri).scheme == "https":
                # Anybody can register any https URL: sent on by itself, a browser would follow every link of theirs.
                return self._trouble(f"{client.name} asked for something that this server does not do: {problem[1]}")
            shown_state = state if state is None or len(state.encode("utf-8", "replace")) <= MAX_STATE_BYTES else None
            return self._back(redirect_uri, shown_state, error=problem[0], error_description=problem[1])
        asked = AuthorizationRequest(
            client_id=client.id,
            client_name=client.name,
            redirect_uri=redirect_uri,
            redirect_uri_given="redirect_uri" in given,
            state=state,
            scopes=_scopes(given.get("scope")) or SCOPES,
            code_challenge=given["code_challenge"],
            expires_at_s=self._clock() + ASKED_S,
        )
        visitor = request.cookies.get(_VISITOR_COOKIE, "")
        if not _VISITOR.fullmatch(visitor):
            visitor = secrets.token_urlsafe(24)
        return self._key_page(asked, self._sealer.seal(asked), visitor, client)

    def _problem(self, given: Mapping[str, str]) -> tuple[str, str] | None:
        """What the client is told of its request: an error code and a sentence."""
        if given.get("response_type") != "code":
            return "unsupported_response_type", "response_type has to be code."
        proof = _CHALLENGE.fullmatch(given.get("code_challenge", ""))
        if given.get("code_challenge_method") != "S256" or proof is None:
            return "invalid_request", "PKCE is required: code_challenge with code_challenge_method S256."
        if len(given.get("state", "").encode("utf-8", "replace")) > MAX_STATE_BYTES:
            return "invalid_request", f"state is longer than {MAX_STATE_BYTES} bytes."
        if not self._is_resource(given.get("resource")):
            return "invalid_target", f"resource has to be {self.resource}."
        if _scopes(given.get("scope")) == ():
            return "invalid_scope", f"The scopes there are: {' '.join(SCOPES)}."
        return None

    async def _sign_in(self, request: Request) -> Response:
        """The key was entered: have the host say whose it is, then ask for consent."""
        form, asked, visitor = await self._continued(request)
        if asked is None:
            return self._trouble("This page has expired. Start once more from your assistant.")
        client = await self._client_of(asked)
        try:
            address = await self._identify(request.scope, form.get("key", "").strip())
        except Refused as refused:
            shown = self._key_page(asked, form["request"], visitor, client, problem=refused.text)
            # A browser would ask for a password of its own on 401.
            shown.status_code = 403 if refused.status == 401 else refused.status
            return shown
        signed = Signed(
            api_key=form["key"].strip(),
            address=address,
            asked=digest(form["request"]),
            expires_at_s=self._clock() + SIGNED_S,
        )
        hidden = self._hidden(form["request"], visitor) | {"signed": self._sealer.seal(signed)}
        shown_page = pages.consent(asked, address, hidden, verified_host=client.verified_host if client else None)
        return self._shown(shown_page, visitor, asked.redirect_uri)

    async def _consent(self, request: Request) -> Response:
        """The person decided: back to the client, with a code or without."""
        form, asked, _visitor = await self._continued(request)
        if asked is None:
            return self._trouble("This page has expired. Start once more from your assistant.")
        if form.get("decision") != "allow":
            return self._back(
                asked.redirect_uri, asked.state, error="access_denied", error_description="The person said no."
            )
        signed = self._sealer.open(form.get("signed", ""), Signed)
        if signed is None or signed.expires_at_s <= self._clock() or signed.asked != digest(form["request"]):
            return self._trouble("This page has expired. Start once more from your assistant.")
        scopes = asked.scopes
        if form.get("rights") != WRITE:
            scopes = tuple(scope for scope in scopes if scope != WRITE) or SCOPES[:1]
        try:
            code = await self._grants.code(asked, signed.api_key, scopes)
        except GrantsAway:
            return self._back(
                asked.redirect_uri,
                asked.state,
                error="temporarily_unavailable",
                error_description="The server's store is away. Try again in a moment.",
            )
        return self._back(asked.redirect_uri, asked.state, code=code)

    async def _token(self, request: Request) -> Response:
        """RFC 6749, 4.1.3 and 6."""
        given = await _fields(request)
        if given is None:
            return _error("invalid_request", "The body has to be a form that names no field twice.")
        client = await self._authenticated(request)
        if isinstance(client, Response):
            return client
        grant = given.get("grant_type", "")
        if grant not in ("authorization_code", "refresh_token"):
            return _error("unsupported_grant_type", "grant_type has to be authorization_code or refresh_token.")
        needs = ("code", "code_verifier") if grant == "authorization_code" else ("refresh_token",)
        if missing := [name for name in needs if not given.get(name)]:
            return _error("invalid_request", f"{' and '.join(missing)} missing.")
        resource_ok = self._is_resource(given.get("resource"))
        scopes = _scopes(given.get("scope"))
        try:
            if grant == "authorization_code":
                issued = await self._grants.redeem(
                    given["code"],
                    client.client_id,
                    redirect_uri=given.get("redirect_uri"),
                    code_verifier=given["code_verifier"],
                    resource_ok=resource_ok,
                )
            elif not resource_ok:
                return _error("invalid_target", f"resource has to be {self.resource}.")
            elif scopes == ():
                return _error("invalid_scope", f"The scopes there are: {' '.join(SCOPES)}.")
            else:
                issued = await self._grants.refresh(given["refresh_token"], client.client_id, scopes)
        except GrantRefused as refused:
            return _error("invalid_grant", str(refused))
        except GrantsAway:
            return _away()
        return JSONResponse(_token_answer(issued), headers=_NO_STORE)

    async def _revoke(self, request: Request) -> Response:
        """RFC 7009: 200 also for a token that is none."""
        given = await _fields(request)
        if given is None or not given.get("token"):
            return _error("invalid_request", "token is missing.")
        client = await self._authenticated(request)
        if isinstance(client, Response):
            return client
        try:
            await self._grants.revoke(given["token"], client.client_id)
        except GrantsAway:
            return _away()
        return Response(headers=_NO_STORE)

    async def _authenticated(self, request: Request) -> OAuthClientInformationFull | Response:
        try:
            return await self._authenticator.authenticate_request(request)
        except AuthenticationError as error:
            headers = _NO_STORE | ({"www-authenticate": "Basic"} if "authorization" in request.headers else {})
            body = {"error": "invalid_client", "error_description": error.message}
            return JSONResponse(body, status_code=401, headers=headers)

    async def _continued(self, request: Request) -> tuple[dict[str, str], AuthorizationRequest | None, str]:
        """The form of a page, and the request it goes back to; None where it was not served to this visitor."""
        form = await _fields(request) or {}
        visitor = request.cookies.get(_VISITOR_COOKIE, "")
        sealed = form.get("request", "")
        asked = self._sealer.open(sealed, AuthorizationRequest)
        proven = bool(visitor) and self._sealer.form_is_proven(form.get("proof", ""), visitor, sealed)
        fresh = asked is not None and proven and asked.expires_at_s > self._clock()
        return form, asked if fresh else None, visitor

    async def _client_of(self, asked: AuthorizationRequest) -> OAuthClient | None:
        try:
            return await self._clients.get(asked.client_id)
        except UnknownClient:
            return None  # its metadata cannot be had at the moment; the request was checked when it came

    def _key_page(
        self,
        asked: AuthorizationRequest,
        sealed: str,
        visitor: str,
        client: OAuthClient | None,
        *,
        problem: str | None = None,
    ) -> Response:
        hidden = self._hidden(sealed, visitor)
        verified_host = client.verified_host if client else None
        page = pages.sign_in(asked, hidden, verified_host=verified_host, problem=problem)
        return self._shown(page, visitor, asked.redirect_uri)

    def _hidden(self, sealed: str, visitor: str) -> dict[str, str]:
        return {"request": sealed, "proof": self._sealer.form_proof(visitor, sealed)}

    def _shown(self, page: str, visitor: str, redirect_uri: str) -> Response:
        response = Response(page, media_type="text/html", headers=_page_headers(redirect_uri))
        response.set_cookie(
            _VISITOR_COOKIE,
            visitor,
            max_age=int(ASKED_S),
            path="/oauth",
            secure=self._secure,
            httponly=True,
            samesite="strict",
        )
        return response

    def _trouble(self, text: str) -> Response:
        page = pages.trouble("That did not work", text)
        return Response(page, status_code=400, media_type="text/html", headers=_page_headers(None))

    def _back(self, redirect_uri: str, state: str | None, **fields: str) -> Response:
        """To the client (RFC 6749, 4.1.2), with who answers (RFC 9207)."""
        given = fields | ({"state": state} if state is not None else {}) | {"iss": self.issuer}
        joint = "&" if urlsplit(redirect_uri).query else "?"
        headers = _NO_STORE | {"referrer-policy": "no-referrer"}
        return RedirectResponse(f"{redirect_uri}{joint}{urlencode(given)}", status_code=303, headers=headers)

    def _is_resource(self, asked: str | None) -> bool:
        """Whether a resource indicator means this server; older clients send none (RFC 8707)."""
        return asked is None or asked.rstrip("/") in (self.resource, self.issuer)


class _SdkProvider:
    """What the SDK's registration and client authentication need of a provider; the rest is never called."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(name)

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        """The client of an id, or None."""
        return await self._clients.get_client(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Gives the registration its id. Raises `RegistrationError`."""
        self._clients.register(client_info)


async def _fields(request: Request) -> dict[str, str] | None:
    """The parameters of a request, from its query or its form; None where one is there twice (RFC 6749, 3.1).

    Of a form's kinds only the one that the RFC has: others take the event loop long to read.
    """
    if request.method == "GET":
        text = request.scope["query_string"]
    elif request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM_TYPE:
        text = await request.body()
    else:
        return None
    try:
        found = parse_qsl(text.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        return None
    pairs = [(name, value) for name, value in found if value]
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else None


def _scopes(asked: str | None) -> tuple[str, ...] | None:
    """The scopes of a request in their own order: None where none were asked for, empty where one is unknown."""
    if asked is None:
        return None
    wanted = set(asked.split())
    # Clients that know OpenID ask for a refresh token so; it comes anyway.
    wanted.discard("offline_access")
    if not wanted:
        return None
    return tuple(scope for scope in SCOPES if scope in wanted) if wanted <= set(SCOPES) else ()


def _token_answer(issued: Issued) -> dict[str, Any]:
    return {
        "access_token": issued.access_token,
        "token_type": "Bearer",
        "expires_in": issued.expires_in_s,
        "refresh_token": issued.refresh_token,
        "scope": " ".join(issued.scopes),
    }


def _error(code: str, text: str) -> Response:
    """RFC 6749, 5.2."""
    return JSONResponse({"error": code, "error_description": text}, status_code=400, headers=_NO_STORE)


def _away() -> Response:
    body = {
        "error": "temporarily_unavailable",
        "error_description": "The server's store is away, so nothing can be issued. Try again in a moment.",
    }
    return JSONResponse(body, status_code=503, headers=_NO_STORE | {"retry-after": str(RETRY_AFTER_S)})


def _page_headers(redirect_uri: str | None) -> dict[str, str]:
    """What keeps a page from being framed, scripted, cached or told of."""
    # Browsers hold the redirect that answers a form to form-action as well.
    targets = "'self'"
    if redirect_uri is not None:
        parts = urlsplit(redirect_uri)
        targets += f" {parts.scheme}://{parts.netloc}" if parts.scheme in ("https", "http") else f" {parts.scheme}:"
    return _NO_STORE | {
        "content-security-policy": (
            f"default-src 'none'; style-src 'self'; form-action {targets}; frame-ancestors 'none'; base-uri 'none'"
        ),
        "x-frame-options": "DENY",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "permissions-policy": "interest-cohort=()",
    }


def _safely(handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def safe(request: Request) -> Response:
        try:
            return await handle(request)
        except (ValueError, RecursionError):
            # A body in no encoding, nested beyond reason, or of numbers without end.
            return _error("invalid_request", "The body cannot be read.")

    return safe


def _open(handle: Callable[[Request], Awaitable[Response]], method: str) -> ASGIApp:
    """A route for clients, of any origin: what a visitor's browser holds counts for nothing there."""
    return CORSMiddleware(
        request_response(handle),
        allow_origins="*",
        allow_methods=[method, "OPTIONS"],
        allow_headers=["authorization", "content-type", "mcp-protocol-version"],
    )


async def _style(_request: Request) -> Response:
    headers = {"cache-control": "public, max-age=3600", "x-content-type-options": "nosniff"}
    return Response(shared_pages.STYLE, media_type="text/css", headers=headers)
