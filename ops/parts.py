"""Each part's own settings and objects, made from what the environment says."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from daemon.settings import DaemonSettings
from fmsg.errors import BadInput
from fmsg.http import HostHttp
from fmsg.urls import base_url
from ledger.seal import SealKeys
from ledger.values import LedgerLimits
from mcp_front.http.admission import is_loopback
from mcp_front.settings import Budgets, FrontSettings, HttpSettings, OAuthSettings
from ops.settings import SettingError, Settings
from ops.stdio_settings import activate_s, expanded
from telemetry import metrics
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from ledger.store import RedisStore

BEATS_PER_TTL = 4
"""Heartbeats within the time after which a daemon counts as dead: three may fail."""

DAY_S = 86_400.0


def observe_upstream(route: str, status: int | None, duration_s: float) -> None:
    """Count a request to the host."""
    metrics.UPSTREAM_REQUESTS.labels(route, "none" if status is None else f"{status // 100}xx").inc()
    metrics.UPSTREAM_DURATION.labels(route).observe(duration_s)


def host_http(settings: Settings) -> HostHttp:
    """The connection pool to the configured host. Raises `SettingError`."""
    url = settings.need_api_url()
    try:
        return HostHttp(url, allow_insecure=settings.allow_insecure_http, observer=observe_upstream)
    except BadInput as error:
        raise SettingError(str(error)) from None


def limits(settings: Settings) -> LedgerLimits:
    """What the ledgers keep."""
    return LedgerLimits(
        max_entries=settings.ledger_max_entries,
        ttl_s=settings.ledger_days * DAY_S,
        heartbeat_ttl_s=settings.heartbeat_ttl_s,
    )


def seal_keys(settings: Settings) -> SealKeys:
    """The operator's keys. Raises `SettingError` where missing, `ledger.seal.SealKeyInvalid` where malformed."""
    if settings.seal_key is None:
        raise SettingError(
            "FMSG_SEAL_KEY is not set. Make one with `fmsg-mcpd keygen` and give every process of the fleet the same."
        )
    return SealKeys.parse(settings.seal_key)


def with_seal_key(settings: Settings) -> Settings:
    """The settings, with a seal key of the process's own where none is set.

    What was sealed under the key of an earlier run is asked for anew by the callers' next requests.
    """
    if settings.seal_key is not None:
        return settings
    return msgspec.structs.replace(settings, seal_key=SealKeys.generate())


def redis_store(settings: Settings) -> RedisStore:
    """The fleet's store. Raises `SettingError`, `ledger.seal.SealKeyInvalid`."""
    from ledger.store import RedisStore  # and with it redis-py, which stdio does not need

    url, seal = settings.need_redis_url(), seal_keys(settings)
    try:
        return RedisStore(url, prefix=settings.redis_prefix, limits=limits(settings), seal=seal)
    except ValueError as error:
        named = str(error).replace("Redis URL:", "FMSG_REDIS_URL:").replace("Redis prefix", "FMSG_REDIS_PREFIX")
        raise SettingError(named) from None


def daemon_settings(settings: Settings) -> DaemonSettings:
    """What a daemon takes."""
    return DaemonSettings(
        heartbeat_s=settings.heartbeat_ttl_s / BEATS_PER_TTL,
        heartbeat_ttl_s=settings.heartbeat_ttl_s,
        idle_after_s=settings.idle_minutes * 60,
        connects_per_s=settings.max_connects_per_second,
        drain_s=settings.daemon_drain_s,
        reconcile_s=settings.reconcile_s,
        reconcile_quiet_s=settings.reconcile_s * 5,
        reconcile_alarmed_s=settings.reconcile_s / 4,
        reconcile_reconnected_s=min(10.0, settings.reconcile_s / 4),
    )


def worker_settings(settings: Settings) -> WorkerSettings:
    """What a worker takes. Raises `SettingError`."""
    return WorkerSettings(
        queue_url=settings.queue_redis_url or settings.need_redis_url(),
        prefix=settings.redis_prefix,
    )


def budgets(settings: Settings) -> Budgets:
    """What one client may take of a front process."""
    return Budgets(**{name: getattr(settings, name) for name in Budgets.__struct_fields__})


def oauth_settings(settings: Settings) -> OAuthSettings | None:
    """How people sign in; None where they do not. Raises `SettingError`."""
    if settings.public_url is None:
        return None
    url = settings.public_url.rstrip("/")
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    named = f"FMSG_MCP_PUBLIC_URL: {settings.public_url!r}"
    if not host or parts.scheme not in ("https", "http") or "@" in parts.netloc:
        raise SettingError(f"{named} is no URL of a server. Write it as https://mcp.example.com")
    if parts.scheme == "http" and not is_loopback(host):
        raise SettingError(f"{named} is cleartext, and people would send their keys over it. Write it with https://")
    if parts.path or parts.query or parts.fragment:
        raise SettingError(
            f"{named} has more than a name and a port. Write it as {parts.scheme}://{parts.netloc}; FMSG_MCP_PATH is "
            "the path of the MCP endpoint."
        )
    if settings.seal_key is None:
        raise SettingError(
            "FMSG_MCP_PUBLIC_URL is set and FMSG_SEAL_KEY is not: sign-ins are sealed with it, and would end with this "
            "process. Make one with `fmsg-mcpd keygen` and keep it."
        )
    hosts = tuple(host.lower() for host in settings.client_metadata_hosts)
    return OAuthSettings(
        public_url=url.lower(),
        access_token_s=settings.access_token_s,
        refresh_token_s=settings.refresh_token_s,
        client_metadata_hosts=() if hosts == ("none",) else hosts,
    )


def _public_url(settings: Settings) -> str | None:
    """``FMSG_API_PUBLIC_URL``. Raises `SettingError` where it is none; it is shown, never called."""
    if settings.api_public_url is None:
        return None
    try:
        return base_url(settings.api_public_url, allow_insecure=True, name="FMSG_API_PUBLIC_URL")
    except BadInput as error:
        raise SettingError(str(error)) from None


def front_settings(settings: Settings, *, host: str | None = None, port: int | None = None) -> FrontSettings:
    """What the HTTP front takes; ``host`` and ``port`` from the command line win. Raises `SettingError`."""
    if settings.api_key is not None:
        raise SettingError(
            "FMSG_API_KEY is set, and a hosted server must not act for all its callers with one key (FMSG-007). "
            "Unset it: callers send their own as a bearer token. For one user run `fmsg-mcpd stdio`."
        )
    return FrontSettings(
        transport="http",
        api_url=settings.need_api_url(),
        api_public_url=_public_url(settings),
        default_domain=settings.default_domain,
        directory=expanded(settings.directory),
        wait_default_s=settings.wait_default_s,
        wait_max_s=settings.wait_max_s,
        activate_s=activate_s(settings),
        budgets=budgets(settings),
        oauth=oauth_settings(settings),
        http=HttpSettings(
            host=settings.host if host is None else host,
            port=settings.port if port is None else port,
            path=settings.path.rstrip("/") or "/",
            allowed_hosts=settings.allowed_hosts,
            allowed_origins=settings.allowed_origins,
            trusted_proxies=settings.trusted_proxies,
            drain_notice_s=settings.drain_notice_s,
            drain_s=settings.drain_s,
        ),
    )
