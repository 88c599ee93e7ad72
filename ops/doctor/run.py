"""`fmsg-mcpd doctor` tries everything that has to work, and says of each thing what came and what to do."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from fmsg.errors import BadInput
from ledger.redis.topology import parse_url
from ledger.seal import SealKeyInvalid, SealKeys
from ops import interrupt, parts
from ops.doctor.findings import HIDDEN, Finding, Scrubber, exit_status, line, summary, to_json
from ops.doctor.host import HostChecks
from ops.doctor.local import QUOTED, SERVING, check_admission, check_configuration, check_files, check_own_server
from ops.doctor.proxy import check_proxy
from ops.doctor.redis import RedisChecks
from ops.doctor.sign_in import SignInChecks
from ops.own_redis import url_in
from ops.settings import SettingError, Settings
from ops.terminal import in_colour, width

Group = Literal["configuration", "host", "redis", "sign-in", "proxy"]
"""Checks that are made together."""

ROLES = ("stdio", "fleet", "front", "daemon", "worker", "up")
"""What the environment may be meant for."""

HOLD_S = 75.0
"""Longer than the 60 s that most proxies have as their idle timeout."""

MAX_KEY_BYTES = 4096
"""A key is under 200 bytes. Another file that was named by mistake is refused, and its contents are sent nowhere."""


class DoctorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    role: str | None = None
    key_file: str | None = None
    mcp_url: str | None = None
    data_dir: str | None = None
    hold_s: float = HOLD_S
    only: tuple[Group, ...] = ()

    def wants(self, group: Group) -> bool:
        """Whether a group of checks is made."""
        return not self.only or group in self.only

    def not_made(self, group: Group, tried: str, came: str, do: str = "") -> Finding:
        """The line about a group that cannot be checked: a failure where it was asked for by name."""
        return Finding(check=group, level="failure" if group in self.only else "skipped", tried=tried, came=came, do=do)


def doctor(options: DoctorOptions, *, as_json: bool) -> int:
    """Run the checks and print them. Returns the exit status: see `ops.doctor.findings.exit_status`."""
    # The libraries' log lines would be printed in between; what they say is in the findings.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        key = None if options.key_file is None else read_key(options.key_file)
        environ = dict(os.environ)
        if options.data_dir is not None:
            environ["FMSG_REDIS_URL"] = url_in(Path(options.data_dir).expanduser())
    except (BadInput, SettingError) as error:
        print(f"fmsg-mcpd doctor: {error}", file=sys.stderr)
        return 2
    role = options.role or ("up" if options.data_dir is not None else likely_role(environ))
    try:
        findings = interrupt.run(_run(options, environ, role=role, key=key, aloud=not as_json))
    except KeyboardInterrupt:
        return 130
    if as_json:
        print(to_json(findings, role=role).decode())
    else:
        print(f"\n{summary(findings)}.")
    return exit_status(findings)


async def _run(
    options: DoctorOptions, environ: Mapping[str, str], *, role: str, key: str | None, aloud: bool
) -> list[Finding]:
    if aloud:
        print(f"Looking at this environment as one for {'a fleet' if role == 'fleet' else f'`{role}`'}.\n")
    clean = Scrubber(secrets_of(environ, key))
    findings = []
    async for finding in examine(options, environ, role=role, key=key):
        findings.append(clean.finding(finding))
        if aloud:
            print(line(findings[-1], colours=in_colour(), columns=width()), flush=True)
    return findings


async def examine(
    options: DoctorOptions, environ: Mapping[str, str], *, role: str, key: str | None = None
) -> AsyncIterator[Finding]:
    """All findings, in order. They may hold secrets still: `Scrubber` takes those out."""
    configuration = check_configuration(environ, role=role)
    settings = configuration.settings
    if options.wants("configuration"):
        for finding in configuration.findings:
            yield finding
        yield check_files(settings, role=role)
        if role in SERVING:
            for finding in check_admission(settings, mcp_url=options.mcp_url):
                yield finding
    key = key or settings.api_key
    if options.wants("host"):
        async for finding in _host(options, settings, role=role, key=key):
            yield finding
    if options.wants("redis"):
        async for finding in _redis(options, settings, role=role):
            yield finding
    if options.wants("sign-in") and (role in SERVING or "sign-in" in options.only):
        async for finding in _sign_in(options, settings):
            yield finding
    if options.mcp_url is None:
        if "proxy" in options.only:
            yield options.not_made(
                "proxy", "hold a wait", "no URL is given", "Name a front's public one with --mcp-url."
            )
    elif options.wants("proxy") and key is None:
        tried, do = f"hold a wait through {options.mcp_url}", "Give one with --key-file."
        yield options.not_made("proxy", tried, "it takes an API key", do)
    elif options.wants("proxy") and key is not None:
        yield await check_proxy(options.mcp_url, key, options.hold_s)


async def _host(options: DoctorOptions, settings: Settings, *, role: str, key: str | None) -> AsyncIterator[Finding]:
    try:
        http = parts.host_http(settings)
    except SettingError as error:
        yield options.not_made("host", "read FMSG_API_URL", *halves(error, "FMSG_API_URL"))
        return
    no_key = "FMSG_API_KEY is not set" if role == "stdio" else "it takes an API key: give one with --key-file"
    async with http:
        async for finding in HostChecks(http, api_key=key, no_key=no_key).run():
            yield finding


async def _redis(options: DoctorOptions, settings: Settings, *, role: str) -> AsyncIterator[Finding]:
    if settings.redis_url is None and role == "up":
        yield check_own_server()
        return
    if settings.redis_url is None and role == "stdio" and "redis" not in options.only:
        return
    try:
        seal = None if settings.seal_key is None else SealKeys.parse(settings.seal_key)
    except SealKeyInvalid:
        seal = None
    queue_url = None
    if role in ("worker", "fleet"):  # `up` does its jobs in the process
        queue_url = settings.queue_redis_url or settings.redis_url
    try:
        checks = RedisChecks(
            settings.need_redis_url(),
            prefix=settings.redis_prefix,
            seal=seal,
            queue_url=queue_url,
            api_url=None if settings.api_url is None else settings.api_url.rstrip("/"),
        )
    except (SettingError, ValueError) as error:
        yield options.not_made("redis", "read FMSG_REDIS_URL", *halves(error, "FMSG_REDIS_URL"))
        return
    async for finding in checks.run():
        yield finding


async def _sign_in(options: DoctorOptions, settings: Settings) -> AsyncIterator[Finding]:
    if settings.public_url is None:
        if "sign-in" in options.only:
            do = "Set it to the URL under which clients reach the fronts."
            yield options.not_made("sign-in", "read FMSG_MCP_PUBLIC_URL", "it is not set", do)
        return
    try:
        oauth = parts.oauth_settings(settings)
    except SettingError as error:
        came, do = halves(error, "FMSG_MCP_PUBLIC_URL")
        yield Finding(check="sign-in", level="failure", tried="read FMSG_MCP_PUBLIC_URL", came=came, do=do)
        return
    if oauth is not None:
        async for finding in SignInChecks(oauth, endpoint=settings.path.rstrip("/")).run():
            yield finding


def halves(error: Exception, name: str) -> tuple[str, str]:
    """What is wrong with a variable, and what to do; without its name and without pieces of its value."""
    text = QUOTED.sub(HIDDEN, str(error)).removeprefix("Redis URL: ").removeprefix(f"{name}: ").removeprefix(f"{name} ")
    came, _, do = text.partition(". ")
    return came.removesuffix("."), do or "Correct it; docs/configuration.md says what it takes."


def likely_role(environ: Mapping[str, str]) -> str:
    """What an environment is meant for: a key belongs to stdio, a Redis without one to a fleet."""
    if environ.get("FMSG_REDIS_URL", "").strip() and not environ.get("FMSG_API_KEY", "").strip():
        return "fleet"
    return "stdio"


def read_key(path: str) -> str:
    """The API key in a file, ``-`` for standard input. Raises `BadInput`."""
    try:
        text = sys.stdin.read(MAX_KEY_BYTES + 1) if path == "-" else _beginning(Path(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadInput(f"--key-file: {path} cannot be read ({reason}). Name a file that holds one API key.") from None
    if not text.strip() or len(text) > MAX_KEY_BYTES or len(text.split()) != 1:
        raise BadInput(f"--key-file: {path} does not hold one API key and nothing else.")
    return text.strip()


def _beginning(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.read(MAX_KEY_BYTES + 1)


def secrets_of(environ: Mapping[str, str], key: str | None) -> Iterator[str | None]:
    """Everything that must not be shown."""
    yield key
    yield environ.get("FMSG_API_KEY", "").strip()
    yield from (part.strip() for part in environ.get("FMSG_SEAL_KEY", "").split(","))
    for name in ("FMSG_REDIS_URL", "FMSG_QUEUE_REDIS_URL"):
        url = environ.get(name, "").strip()
        credentials = url.rpartition("@")[0].partition("://")[2]
        yield from (credentials, credentials.partition(":")[2])
        try:
            parsed = parse_url(url) if url else None
        except ValueError:
            continue
        if parsed is not None:
            yield from (parsed.password, parsed.options.get("sentinel_password"))
