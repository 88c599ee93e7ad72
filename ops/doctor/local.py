"""What can be checked on this machine alone: variables, files, limits of the process, and which hosts are served."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from fmsg.directory import Directory
from fmsg.errors import BadInput
from fmsg.urls import base_url
from ledger.embedded import NoServer, find_server
from ledger.redis.topology import BadRedisUrl, connect, parse_url
from ledger.seal import SealKeyInvalid, SealKeys
from mcp_front.http.admission import BindRefused, HostGate, OriginGate, is_loopback, parse_networks
from ops.doctor.findings import HIDDEN, Finding, Level
from ops.role import limits_now
from ops.settings import SettingError, Settings, load, unknown, variables
from ops.tracing import NoTraces, wanted
from workers.queue import QueueNeedsOneNode

SPARE_FILES = 320
"""Files a process needs besides its sockets to callers: 256 requests to the host at the same time, 32 connections to
Redis, and its own."""

FEEDS = 10_000
"""Sockets that one daemon should be able to hold: what its paces are made for (`daemon.settings`). It takes more where
it has to, since the callers of a daemon that died go to those that are left."""

STDIO_FILES = 256
"""Enough for a stdio server."""

FLEET = frozenset({"front", "daemon", "worker", "fleet"})
"""Roles that share a Redis."""
SERVING = frozenset({"front", "up", "fleet"})
"""Roles that listen for clients."""
FEEDING = frozenset({"daemon", "up", "fleet"})
"""Roles that hold event sockets."""

QUOTED = re.compile(r"'[^']*'")
"""A value in an error's text. A password that is not percent-encoded may have been taken for any part of a URL."""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """What the variables say: the settings as far as they are understood, and the lines about them."""

    settings: Settings
    findings: tuple[Finding, ...]


def check_configuration(environ: Mapping[str, str], *, role: str) -> Configuration:
    """Check each variable by itself, so that all mistakes show at once, and what the role needs and must not have."""
    good: dict[str, str] = {}
    bad: list[Finding] = []
    for _, variable, _, _ in variables():
        text = environ.get(variable.name, "").strip()
        if not text:
            continue
        try:
            load({variable.name: text})
        except SettingError as error:
            do = "Correct it, or unset it for the default; docs/configuration.md says what it takes."
            bad.append(_about("failure", f"read {variable.name}", str(error).removeprefix(f"{variable.name}: "), do))
        else:
            good[variable.name] = text
    settings = load(good)
    lines = [*bad, *_unknown(environ), *_needed(settings, role), *_understood(settings), *_traces(environ, role)]
    if not any(finding.level == "failure" for finding in lines):
        lines.insert(0, _about("ok", "read the FMSG_ variables", f"{len(good)} are set and understood"))
    return Configuration(settings=settings, findings=tuple(lines))


def _about(level: Level, tried: str, came: str, do: str = "") -> Finding:
    return Finding(check="configuration", level=level, tried=tried, came=came, do=do)


def _unknown(environ: Mapping[str, str]) -> Iterator[Finding]:
    for sentence in unknown(environ):
        name, _, rest = sentence.partition(" ")
        yield _about("warning", f"look {name} up", f"it {rest}", "Correct the name, or remove it.")


def _traces(environ: Mapping[str, str], role: str) -> Iterator[Finding]:
    if role not in SERVING:
        return
    try:
        wanted(environ)
    except NoTraces as error:
        came, _, do = str(error).partition(". ")
        yield _about("warning", "ask for traces", came, do)


def _needed(settings: Settings, role: str) -> Iterator[Finding]:
    missing: list[tuple[str, str]] = []
    if settings.api_url is None:
        missing.append(("FMSG_API_URL", "Set it to the base URL of your fmsg host's Web API."))
    if role == "stdio" and settings.api_key is None:
        missing.append(("FMSG_API_KEY", "Set it to the API key of the address to act as, fmsgk_…."))
    if role in FLEET and settings.redis_url is None:
        missing.append(("FMSG_REDIS_URL", "Set it to the Redis that the fleet shares, or run `fmsg-mcpd up`."))
    if role in FLEET and settings.seal_key is None:
        missing.append(("FMSG_SEAL_KEY", "Make one with `fmsg-mcpd keygen`; the same for every process of the fleet."))
    for name, do in missing:
        yield _about("failure", f"read {name}", f"it is not set, and {_named(role)} needs it", do)
    if role == "up" and settings.workers > 1:
        came, do = "`up` is one process", "Unset it, or run `fmsg-mcpd front` and the other parts apart."
        yield _about("failure", "read FMSG_MCP_WORKERS", came, do)
    if role in SERVING and settings.api_key is not None:
        came = "it is set, and a hosted server must not act for all its callers with one key (FMSG-007)"
        do = "Unset it: callers send their own as a bearer token. To check with a key, use --key-file."
        yield _about("failure", "read FMSG_API_KEY", came, do)


def _named(role: str) -> str:
    return f"`fmsg-mcpd {role}`" if role in ("stdio", "up") else f"a {role}"


def _understood(settings: Settings) -> Iterator[Finding]:
    """Check the form of values that the settings take as text."""
    if settings.api_url is not None:
        try:
            base_url(settings.api_url, allow_insecure=settings.allow_insecure_http)
        except BadInput as error:
            yield _about("failure", "read FMSG_API_URL", str(error), "Correct it.")
        else:
            if urlsplit(settings.api_url).scheme == "http" and settings.allow_insecure_http:
                came = "every request carries a credential in cleartext, as FMSG_ALLOW_INSECURE_HTTP allows"
                yield _about("warning", "read FMSG_API_URL", came, "Use https:// outside of a closed network.")
    yield from _redis_urls(settings)
    if settings.seal_key is not None:
        try:
            SealKeys.parse(settings.seal_key)
        except SealKeyInvalid as error:
            yield _about("failure", "read FMSG_SEAL_KEY", str(error), "Make one with `fmsg-mcpd keygen`.")
    yield from _files(settings)


def _redis_urls(settings: Settings) -> Iterator[Finding]:
    try:
        connect("redis://localhost", prefix=settings.redis_prefix)
    except ValueError as error:
        yield _about("failure", "read FMSG_REDIS_PREFIX", str(error), "Correct it.")
    for name, url in (("FMSG_REDIS_URL", settings.redis_url), ("FMSG_QUEUE_REDIS_URL", settings.queue_redis_url)):
        if url is None:
            continue
        do = "Correct it; percent-encode what is special in the user and the password."
        try:
            parsed = parse_url(url)
        except (BadRedisUrl, ValueError) as error:
            yield _about("failure", f"read {name}", QUOTED.sub(HIDDEN, str(error)), do)
        else:
            if parsed.kind == "cluster" and name == "FMSG_QUEUE_REDIS_URL":
                yield _about("failure", f"read {name}", str(QueueNeedsOneNode()), "Name another one.")


def _files(settings: Settings) -> Iterator[Finding]:
    try:
        Directory.load(settings.directory, settings.default_domain)
    except BadInput as error:
        yield _about("failure", "read the directory and the default domain", str(error), "Correct it.")
    for name, path, mode, verb in (
        ("FMSG_MCP_DOWNLOAD_DIR", settings.download_dir, os.W_OK | os.X_OK, "written to"),
        ("FMSG_MCP_UPLOAD_DIR", settings.upload_dir, os.R_OK | os.X_OK, "read"),
    ):
        if path is None:
            continue
        directory = Path(path).expanduser()
        if not directory.is_dir():
            yield _about("failure", f"open {name}", f"{directory} is no directory", "Create it, or name another one.")
        elif not os.access(directory, mode):
            came = f"{directory} cannot be {verb} by this user"
            yield _about("failure", f"open {name}", came, "Change its owner or mode, or name another one.")


def check_files(settings: Settings, *, role: str, limits: tuple[int, int] | None = None) -> Finding:
    """Whether the process may open as many files as its settings let it hold callers.

    ``limits``: soft and hard. The parts of a fleet raise the soft one themselves.
    """
    wanted, what = _wanted_files(settings, role)
    tried = f"compare the limit of open files with {what}"
    limits = limits or limits_now()
    if limits is None:
        return Finding(check="file limit", level="skipped", tried=tried, came="this system has no such limit")
    soft, hard = limits
    most = hard if role in SERVING | FEEDING else soft
    shown = f"{_count(most)} may be open, {wanted} are wanted"
    if most < 0 or most >= wanted:
        return Finding(check="file limit", level="ok", tried=tried, came=shown)
    do = "Set LimitNOFILE=65536 in the systemd unit (or `ulimit -Hn 65536` as root)"
    do += ", or lower FMSG_MCP_MAX_WAITS." if role in SERVING else "."
    return Finding(check="file limit", level="warning", tried=tried, came=shown, do=do)


def _wanted_files(settings: Settings, role: str) -> tuple[int, str]:
    feeding = (FEEDS + SPARE_FILES, f"the {FEEDS} sockets of a daemon")
    waiting = (
        settings.max_waits + SPARE_FILES,
        f"the FMSG_MCP_MAX_WAITS ({settings.max_waits}) connections of a front",
    )
    if role == "up":
        return feeding[0] + waiting[0], f"{feeding[1]} and {waiting[1]}"
    if role == "fleet":
        return max(feeding, waiting)
    if role == "daemon":
        return feeding
    return waiting if role == "front" else (STDIO_FILES, "what a small process needs")


def _count(limit: int) -> str:
    return "any number" if limit < 0 or limit >= 2**60 else str(limit)


def check_own_server() -> Finding:
    """Whether there is a program that `up` can start as its Redis."""
    check, tried = "redis", "look for the redis-server that `up` starts, since FMSG_REDIS_URL names none"
    try:
        program = find_server()
    except NoServer as error:
        came, _, do = str(error).partition(". ")
        return Finding(check=check, level="failure", tried=tried, came=came, do=f"{do} Or set FMSG_REDIS_URL.")
    return Finding(check=check, level="ok", tried=tried, came=f"{program}")


def check_admission(settings: Settings, *, mcp_url: str | None) -> list[Finding]:
    """Check which requests are served: bind and allowed hosts, origins, trusted proxies, and a client's URL."""
    tried = f"bind {settings.host} with {len(settings.allowed_hosts)} names in FMSG_MCP_ALLOWED_HOSTS"
    try:
        gate = HostGate(settings.host, settings.allowed_hosts)
        OriginGate(settings.allowed_origins)
        parse_networks(settings.trusted_proxies)
    except (BindRefused, ValueError) as error:
        do = "Without it the front does not start, since any page in a browser could reach it by DNS rebinding."
        return [Finding(check="allowed hosts", level="failure", tried=tried, came=str(error), do=do)]
    if mcp_url is not None:
        return [_admits(gate, mcp_url)]
    came, do = ", ".join(settings.allowed_hosts), ""
    if is_loopback(settings.host) and not settings.allowed_hosts:
        came = "requests for localhost, 127.0.0.1 and [::1] are served, others are refused"
        do = "Fine for clients on this machine. Behind a proxy, name the public host in FMSG_MCP_ALLOWED_HOSTS."
    elif is_loopback(settings.host):
        came = f"served are localhost, 127.0.0.1, [::1] and {came}"
    else:
        came = f"served are {came}"
    return [Finding(check="allowed hosts", level="ok", tried=tried, came=came, do=do)]


def _admits(gate: HostGate, mcp_url: str) -> Finding:
    host = urlsplit(mcp_url).netloc.rpartition("@")[2]
    tried = f"ask whether requests to {host} would be served"
    if gate.admits([(b"host", host.encode("ascii", "replace"))]):
        return Finding(check="allowed hosts", level="ok", tried=tried, came="they would")
    do = f"Add {urlsplit(mcp_url).hostname} to FMSG_MCP_ALLOWED_HOSTS, or let the proxy set the Host header."
    came = "no: they are answered with 421, unless the proxy changes the Host header"
    return Finding(check="allowed hosts", level="warning", tried=tried, came=came, do=do)
