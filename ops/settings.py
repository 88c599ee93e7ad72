"""Every environment variable, once: its name, type, default and meaning. `docs/configuration.md` is made from this.

The names of the standard (FMSG-007, stdio Profile) and of the reference server are kept where they mean the same.
"""

from __future__ import annotations

import difflib
import os
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

Role = Literal["stdio", "front", "daemon", "worker", "up", "sandbox"]


class SettingError(Exception):
    """A variable is missing or cannot be used. The text names it, the reason and the next step."""


MAX_PORT = 65_535
"""The largest port (RFC 9293). Beyond it operating systems fail, or take another port."""


class Variable(msgspec.Struct, frozen=True):
    """How one setting comes in: its name, what it means, who reads it, whether it is a secret, how large it may be."""

    name: str
    meaning: str
    roles: tuple[Role, ...] = ()
    secret: bool = False
    most: int | None = None


_SERVING: tuple[Role, ...] = ("front", "up")
_FLEET: tuple[Role, ...] = ("front", "daemon", "worker")
_ALL: tuple[Role, ...] = ("stdio", "front", "daemon", "worker", "up")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment says. Durations in seconds, sizes in bytes."""

    api_url: Annotated[str | None, Variable("FMSG_API_URL", "Base URL of the fmsg Web API (FMSG-003).", _ALL)] = None
    api_public_url: Annotated[
        str | None,
        Variable(
            "FMSG_API_PUBLIC_URL",
            "URL of the Web API as people know it: what `whoami` shows in place of an internal FMSG_API_URL.",
            ("stdio", *_SERVING),
        ),
    ] = None
    api_key: Annotated[
        str | None,
        Variable(
            "FMSG_API_KEY",
            "API key of the address that `stdio` acts as. Hosted servers refuse it: callers bring their own.",
            ("stdio",),
            secret=True,
        ),
    ] = None
    default_domain: Annotated[
        str | None,
        Variable(
            "FMSG_DEFAULT_DOMAIN",
            "Domain that a bare short name is completed with; `caller` takes that of the caller's own address.",
            ("stdio", *_SERVING),
        ),
    ] = None
    directory: Annotated[
        str | None,
        Variable("FMSG_DIRECTORY", "Path of a JSON object: short name to full address.", ("stdio", *_SERVING)),
    ] = None
    allow_insecure_http: Annotated[
        bool, Variable("FMSG_ALLOW_INSECURE_HTTP", "Allow a cleartext FMSG_API_URL outside loopback.", _ALL)
    ] = False

    host: Annotated[str, Variable("FMSG_MCP_HOST", "Address the front binds.", _SERVING)] = "127.0.0.1"
    port: Annotated[
        int, Variable("FMSG_MCP_PORT", "Port the front binds; 0 takes a free one.", _SERVING, most=MAX_PORT)
    ] = 3000
    path: Annotated[
        str, Variable("FMSG_MCP_PATH", "Path of the MCP endpoint, with the prefix a proxy leaves, if any.", _SERVING)
    ] = "/mcp"
    workers: Annotated[int, Variable("FMSG_MCP_WORKERS", "Front processes on the one port.", _SERVING)] = 1
    allowed_hosts: Annotated[
        tuple[str, ...],
        Variable(
            "FMSG_MCP_ALLOWED_HOSTS",
            "Host names that clients use for this server, comma separated: name, name:port or name:*. Required for a "
            "bind outside loopback.",
            _SERVING,
        ),
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        Variable(
            "FMSG_MCP_ALLOWED_ORIGINS",
            "Origins of browser pages that are served, comma separated: https://app.example.com. On a loopback bind "
            "every page of this machine is.",
            _SERVING,
        ),
    ] = ()
    trusted_proxies: Annotated[
        tuple[str, ...],
        Variable(
            "FMSG_MCP_TRUSTED_PROXIES",
            "Networks whose X-Forwarded-For and X-Request-ID are believed, comma separated.",
            _SERVING,
        ),
    ] = ()
    public_url: Annotated[
        str | None,
        Variable(
            "FMSG_MCP_PUBLIC_URL",
            "https://name[:port] under which clients reach the fronts. Set, it lets people sign in with a browser.",
            _SERVING,
        ),
    ] = None
    access_token_s: Annotated[
        float, Variable("FMSG_MCP_ACCESS_TOKEN_SECONDS", "Life of an access token of a sign-in.", _SERVING)
    ] = 3600.0
    refresh_token_s: Annotated[
        float,
        Variable("FMSG_MCP_REFRESH_TOKEN_SECONDS", "How long a sign-in lasts that is not used.", _SERVING),
    ] = 30 * 86_400.0
    client_metadata_hosts: Annotated[
        tuple[str, ...],
        Variable(
            "FMSG_MCP_CLIENT_METADATA_HOSTS",
            "Hosts whose client metadata documents are fetched at a sign-in, comma separated; `none` for none.",
            _SERVING,
        ),
    ] = ("claude.ai", "claude.com", "chatgpt.com", "openai.com", "vscode.dev", "cursor.com")
    wait_default_s: Annotated[
        float, Variable("FMSG_MCP_WAIT_DEFAULT_SECONDS", "Length of a wait that names none.", ("stdio", *_SERVING))
    ] = 50.0
    wait_max_s: Annotated[
        float, Variable("FMSG_MCP_WAIT_MAX_SECONDS", "Longest a single wait is held.", ("stdio", *_SERVING))
    ] = 230.0
    max_body_bytes: Annotated[
        int, Variable("FMSG_MCP_MAX_BODY_BYTES", "Largest request body, attachments in base64 included.", _SERVING)
    ] = 64 * 1024 * 1024
    body_s: Annotated[
        float, Variable("FMSG_MCP_BODY_SECONDS", "Longest a client may take to send a whole body.", _SERVING)
    ] = 120.0
    header_bytes: Annotated[
        int, Variable("FMSG_MCP_HEADER_BYTES", "Largest request line and headers together.", _SERVING)
    ] = 32 * 1024
    header_s: Annotated[
        float, Variable("FMSG_MCP_HEADER_SECONDS", "Longest a client may take to send its headers.", _SERVING)
    ] = 15.0
    json_depth: Annotated[int, Variable("FMSG_MCP_JSON_DEPTH", "Deepest nesting of a body.", _SERVING)] = 64
    json_items: Annotated[int, Variable("FMSG_MCP_JSON_ITEMS", "Most values in a body.", _SERVING)] = 100_000
    max_waits_per_caller: Annotated[
        int, Variable("FMSG_MCP_MAX_WAITS_PER_CALLER", "Waits one caller may hold in one front process.", _SERVING)
    ] = 100
    max_waits: Annotated[
        int, Variable("FMSG_MCP_MAX_WAITS", "Waits one front process holds for all callers.", _SERVING)
    ] = 20_000
    upload_bytes: Annotated[
        int, Variable("FMSG_MCP_UPLOAD_BYTES", "Bodies being handled at the same time, all callers together.", _SERVING)
    ] = 256 * 1024 * 1024
    upload_bytes_per_caller: Annotated[
        int, Variable("FMSG_MCP_UPLOAD_BYTES_PER_CALLER", "The same for one caller.", _SERVING)
    ] = 96 * 1024 * 1024
    answer_bytes: Annotated[
        int,
        Variable("FMSG_MCP_ANSWER_BYTES", "Memory of answers being made and read, all callers together.", _SERVING),
    ] = 256 * 1024 * 1024
    answer_bytes_per_caller: Annotated[
        int, Variable("FMSG_MCP_ANSWER_BYTES_PER_CALLER", "The same for one caller.", _SERVING)
    ] = 128 * 1024 * 1024
    auth_failures: Annotated[
        int,
        Variable(
            "FMSG_MCP_AUTH_FAILURES",
            "Different refused keys per source address and minute before it has to slow down.",
            _SERVING,
        ),
    ] = 30
    exchanges_per_source: Annotated[
        int,
        Variable(
            "FMSG_MCP_EXCHANGES_PER_SOURCE", "Unknown keys of one source address looked up at the same time.", _SERVING
        ),
    ] = 32
    max_connections: Annotated[
        int, Variable("FMSG_MCP_MAX_CONNECTIONS", "Open client connections of one front process.", _SERVING)
    ] = 50_000
    write_stall_s: Annotated[
        float,
        Variable(
            "FMSG_MCP_WRITE_STALL_SECONDS",
            "A client that takes nothing of its answer for so long is dropped.",
            _SERVING,
        ),
    ] = 60.0
    drain_notice_s: Annotated[
        float,
        Variable(
            "FMSG_MCP_DRAIN_NOTICE_SECONDS",
            "From being unready to refusing connections: what the proxy needs to notice.",
            _SERVING,
        ),
    ] = 0.0
    drain_s: Annotated[
        float, Variable("FMSG_MCP_DRAIN_SECONDS", "Longest that running calls are waited for at a stop.", _SERVING)
    ] = 30.0
    download_dir: Annotated[
        str | None,
        Variable(
            "FMSG_MCP_DOWNLOAD_DIR",
            "Directory below which attachments are saved; without it there is no `save_to`.",
            ("stdio",),
        ),
    ] = None
    upload_dir: Annotated[
        str | None,
        Variable(
            "FMSG_MCP_UPLOAD_DIR",
            "Directory below which attachments are sent by `path`; without it there is no `path`.",
            ("stdio",),
        ),
    ] = None

    redis_url: Annotated[
        str | None,
        Variable(
            "FMSG_REDIS_URL",
            "Redis of the ledgers: redis://, rediss://, redis+sentinel://, redis+cluster://. Without it `up` starts "
            "its own and `stdio` keeps its positions in memory.",
            _ALL,
            secret=True,
        ),
    ] = None
    redis_prefix: Annotated[str, Variable("FMSG_REDIS_PREFIX", "Prefix of every Redis key.", _ALL)] = "fmsg"
    queue_redis_url: Annotated[
        str | None,
        Variable(
            "FMSG_QUEUE_REDIS_URL",
            "Redis of the job queue where it is another one (a Cluster cannot hold the queue).",
            ("worker",),
            secret=True,
        ),
    ] = None
    seal_key: Annotated[
        str | None,
        Variable(
            "FMSG_SEAL_KEY",
            "Keys that seal credentials at rest, comma separated; the first seals, all open. See `fmsg-mcpd keygen`. "
            "Without one `stdio` and `up` make their own at each start.",
            _ALL,
            secret=True,
        ),
    ] = None
    ledger_max_entries: Annotated[
        int, Variable("FMSG_LEDGER_MAX_ENTRIES", "Arrivals kept per caller; older ones are read from the host.", _ALL)
    ] = 1000
    ledger_days: Annotated[float, Variable("FMSG_LEDGER_DAYS", "Days a ledger is kept after its last use.", _ALL)] = (
        30.0
    )

    idle_minutes: Annotated[
        float,
        Variable("FMSG_IDLE_MINUTES", "Minutes without a request after which a caller's socket is closed.", _ALL),
    ] = 30.0
    max_connects_per_second: Annotated[
        float,
        Variable(
            "FMSG_MAX_CONNECTS_PER_SECOND",
            "Event sockets opened per second at the host, by all daemons of the fleet together.",
            ("daemon", "up"),
        ),
    ] = 100.0
    daemon_drain_s: Annotated[
        float,
        Variable(
            "FMSG_DAEMON_DRAIN_SECONDS",
            "How long a stopping daemon waits for others to take its callers, at the rate above.",
            ("daemon", "up"),
        ),
    ] = 25.0
    reconcile_s: Annotated[
        float,
        Variable("FMSG_RECONCILE_SECONDS", "About how often a live feed is compared with the host's list.", _ALL),
    ] = 60.0
    heartbeat_ttl_s: Annotated[
        float,
        Variable(
            "FMSG_HEARTBEAT_TTL_SECONDS",
            "A daemon silent for so long is taken for dead and its callers are taken over.",
            ("daemon", "up"),
        ),
    ] = 10.0

    log_format: Annotated[
        Literal["human", "json"], Variable("FMSG_LOG_FORMAT", "`human` or `json`, on standard error.", _ALL)
    ] = "human"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        Variable(
            "FMSG_LOG_LEVEL",
            "Least severe level logged: `debug`, `info` (with a line for each call), `warning` or `error`. Default: "
            "`info`, for stdio `warning`, since agent hosts show what it logs as errors.",
            _ALL,
        ),
    ] = None
    metrics_host: Annotated[
        str, Variable("FMSG_METRICS_HOST", "Address the metrics and health port binds.", (*_FLEET, "up"))
    ] = "127.0.0.1"
    metrics_port: Annotated[
        int | None,
        Variable(
            "FMSG_METRICS_PORT",
            "Port of /metrics, /healthz and /readyz of the process; 0 takes a free one, empty means none.",
            (*_FLEET, "up"),
            most=MAX_PORT,
        ),
    ] = None

    def need_api_url(self) -> str:
        """The API URL; raises `SettingError` where it is missing."""
        if self.api_url is None:
            raise SettingError("FMSG_API_URL is not set. Set it to the base URL of your fmsg host's Web API.")
        return self.api_url

    def need_redis_url(self) -> str:
        """The Redis URL; raises `SettingError` where it is missing."""
        if self.redis_url is None:
            raise SettingError(
                "FMSG_REDIS_URL is not set. Set it to the Redis that the fleet shares, for example "
                "redis://127.0.0.1:6379/0, or run `fmsg-mcpd up`, which starts its own: "
                "commands that look at that one take its --data-dir."
            )
        return self.redis_url


def variables() -> Iterator[tuple[str, Variable, Any, Any]]:
    """Field name, variable, type and default of every setting, in order."""
    hints = typing.get_type_hints(Settings, include_extras=True)
    for field in msgspec.structs.fields(Settings):
        annotated = hints[field.name]
        kind, variable = typing.get_args(annotated)
        yield field.name, variable, kind, field.default


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from the environment. An empty variable counts as unset. Raises `SettingError`."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    for field, variable, kind, _ in variables():
        text = environ.get(variable.name, "").strip()
        if text:
            values[field] = _parse(variable, kind, text)
    settings = Settings(**values)
    if settings.wait_default_s > settings.wait_max_s:
        settings = msgspec.structs.replace(settings, wait_default_s=settings.wait_max_s)
    return settings


def unknown(environ: Mapping[str, str] | None = None) -> list[str]:
    """A sentence for each ``FMSG_`` variable that nobody reads, with the nearest one that is meant."""
    environ = os.environ if environ is None else environ
    names = [variable.name for _, variable, _, _ in variables()]
    found = []
    for name in sorted(environ):
        if name.startswith("FMSG_") and name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            found.append(f"{name} is not a setting and is ignored.{hint}")
    return found


_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


def _parse(variable: Variable, kind: Any, text: str) -> Any:
    shown = "its value" if variable.secret else repr(text)
    if type(None) in typing.get_args(kind):
        (kind,) = (one for one in typing.get_args(kind) if one is not type(None))
    options = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        if text.lower() not in options:
            raise SettingError(f"{variable.name}: {shown} is not one of {', '.join(options)}.")
        return text.lower()
    if kind is bool:
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise SettingError(f"{variable.name}: {shown} is neither 1 nor 0.")
    if typing.get_origin(kind) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if kind in (int, float):
        return _number(variable, text, whole=kind is int)
    return text


def _number(variable: Variable, text: str, *, whole: bool) -> float:
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        raise SettingError(
            f"{variable.name}: {text!r} is not a {'whole ' if whole else ''}number. Give it in plain digits."
        ) from None
    if variable.most is not None and not 0 <= number <= variable.most:
        raise SettingError(f"{variable.name}: {text!r} is out of range. Give a number from 0 to {variable.most}.")
    if not 0 <= number < 1e15:
        raise SettingError(f"{variable.name}: {text!r} is out of range. Give a number from 0 up.")
    return number
