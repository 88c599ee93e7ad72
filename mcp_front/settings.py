"""The settings of a front, as one frozen value. `ops` fills it from the environment; tests write it out."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

MIB = 1024 * 1024
"""Bytes in a mebibyte."""


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """What one client may take of a front process. An error over budget names the budget by its variable.

    Durations are in seconds, sizes in bytes. None of them limits a message, which is for the host to do (FMSG-007, Host
    authority on limits). They keep one client from taking what the others need.
    """

    max_body_bytes: int = 64 * MIB
    """A request body: twice the host's default message of 20 MB, in base64, with room for larger hosts."""
    body_s: float = 120.0
    """To send a whole body once its headers came: 64 MiB at 4.5 Mbit/s."""
    header_bytes: int = 32 * 1024
    """Request line and headers together; an API key is under 200 bytes, proxies add a few kB."""
    header_s: float = 15.0
    """From the first byte of a connection or request to the end of its headers."""
    json_depth: int = 64
    """Nesting of a body; ours need six."""
    json_items: int = 100_000
    """Values in a body: each costs the parser up to 60 times its bytes."""
    max_waits_per_caller: int = 100
    """Waits and subscription streams that one caller holds in one process."""
    max_waits: int = 20_000
    """Waits and subscription streams that one process holds."""
    upload_bytes: int = 256 * MIB
    """Bodies being received and handled at the same time, all callers together."""
    upload_bytes_per_caller: int = 96 * MIB
    """The same for one caller: one body of the largest size, and half of another."""
    answer_bytes: int = 256 * MIB
    """Memory of the answers being made and read at the same time, all callers together."""
    answer_bytes_per_caller: int = 128 * MIB
    """The same for one caller: one attachment of 32 MiB, or three of 10 MB (`mcp_front.limits.CONTENT_WEIGHT`)."""
    auth_failures: int = 30
    """Different refused keys per source address and minute; above it only keys that are known to be good get in."""
    exchanges_per_source: int = 32
    """Unknown keys of one source address that are being looked up at the same time; further ones queue."""
    max_connections: int = 50_000
    """Open client connections of one process; further ones are closed at once."""
    write_stall_s: float = 60.0
    """A client that takes nothing of its answer for so long is dropped."""


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how the HTTP front listens."""

    host: str = "127.0.0.1"
    port: int = 3000
    path: str = "/mcp"
    """Path of the MCP endpoint (FMSG-007, Streamable HTTP Profile)."""
    allowed_hosts: tuple[str, ...] = ()
    """Host header values that are served: ``name``, ``name:port`` or ``name:*``. Loopback names are always served on a
    loopback bind; any other bind needs this list."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of browser pages, as ``scheme://host[:port]``, compared exactly. Those of this machine are always served
    on a loopback bind."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks whose ``X-Forwarded-For`` and ``X-Request-ID`` are believed."""
    sse_after_s: float = 1.0
    """An answer that takes longer becomes a stream, so that it can carry pings; short ones stay plain JSON."""
    ping_s: float = 15.0
    """Between keep-alive comments on a stream: half the usual 30 s idle timeout of a proxy."""
    keep_alive_s: float = 75.0
    """An idle connection stays open so long: above the 60 s at which load balancers give up theirs."""
    backlog: int = 4096
    """Connections the kernel queues for us; a burst of reconnects after a deploy must fit."""
    drain_notice_s: float = 0.0
    """Between being unready and refusing connections: as long as the proxy needs to notice."""
    drain_s: float = 30.0
    """Longest that running calls are waited for before the process leaves all the same."""


class OAuthSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Signing in with a browser (MCP authorization)."""

    public_url: str
    """``https://host[:port]`` under which clients reach this server; ``http`` on loopback only."""
    access_token_s: float = 3600.0
    """Life of an access token: short, since it is sent with every request."""
    refresh_token_s: float = 30 * 86_400.0
    """Life of a refresh token, from its last use: a connector that rests for so long signs in again."""
    client_metadata_hosts: tuple[str, ...] = ()
    """Hosts whose client metadata documents are fetched. A client of another host has to register."""


class FrontSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the front takes, over stdio as over HTTP. ``api_url`` None is allowed on stdio only."""

    transport: Literal["stdio", "http"] = "http"
    api_url: str | None = None
    api_public_url: str | None = None
    """What `whoami` shows in place of ``api_url``, which may be an internal address."""
    default_domain: str | None = None
    """Domain that completes a bare short name; ``caller`` is that of the caller's own address."""
    directory: Path | None = None
    """JSON file: an object of short name to full address."""
    download_dir: Path | None = None
    """Attachments are saved below it only (stdio)."""
    upload_dir: Path | None = None
    """Attachments may be sent by path from below it (stdio)."""
    wait_default_s: float = 50.0
    """Below the 60 s at which common MCP hosts cut a call."""
    wait_max_s: float = 230.0
    """FMSG-007, wait_for_message: the recommended cap."""
    progress_s: float = 15.0
    """Between progress notifications of a held wait, where the client asked for them."""
    activate_s: float = 300.0
    """How often a caller with a live feed is reported active; below the idle time after which feeds stop."""
    known_callers: int = 50_000
    """API keys whose exchange is remembered (by keyed hash); beyond it the least recently used is exchanged anew."""
    requests_per_caller: int = 32
    """Requests to the host that one caller has under way; further ones wait. An eighth of what the process has at once
    (`fmsg.http.MAX_CONCURRENT`), so that a caller that asks for everything does not slow down the others."""
    recheck_s: float = 900.0
    """A key whose caller made the host serve nothing for so long is exchanged anew before it is believed again."""
    refused_s: float = 10.0
    """A key the host refused is refused by us for so long without asking again."""
    refused_keys: int = 10_000
    """How many of them are remembered."""
    budgets: Budgets = Budgets()
    http: HttpSettings = HttpSettings()
    oauth: OAuthSettings | None = None
    """Signing in with a browser; None: off."""

    @property
    def endpoint_url(self) -> str | None:
        """The URL of the MCP endpoint as clients know it; None where nobody said it."""
        return None if self.oauth is None else f"{self.oauth.public_url}{self.http.path}"


def budget_name(field: str) -> str:
    """The variable that sets a budget, for its error: ``body_s`` gives ``FMSG_MCP_BODY_SECONDS``."""
    stem = field[:-2] + "_seconds" if field.endswith("_s") else field
    return f"FMSG_MCP_{stem.upper()}"
