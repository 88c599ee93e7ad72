"""A long-running part as a process: settings and logs in, signals and exit status out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator

from ops.settings import SettingError, Settings, load, unknown

log = logging.getLogger("ops.role")

Serve = Callable[[Settings, asyncio.Event], Awaitable[None]]
"""Runs a part until the event is set."""


def run_role(role: str, serve: Serve, *, own_signals: bool = True) -> int:
    """Run a part with logs, an event loop and signals; returns the exit status.

    The first SIGINT or SIGTERM sets the part's stop event, a second one ends the process at once.
    """
    from ledger.embedded import NoServer
    from ledger.port import LedgerUnavailable
    from telemetry import logs

    try:
        settings = load()
    except SettingError as error:
        print(f"fmsg-mcpd {role}: {error}", file=sys.stderr)
        return 2
    logs.configure(log_format=settings.log_format, level=settings.log_level or "info", role=role)
    for sentence in unknown():
        log.warning(sentence, extra={"action": "unknown_setting"})
    return_status = 0
    try:
        _run(settings, serve, own_signals=own_signals)
    except* (SettingError, LedgerUnavailable, NoServer, ValueError, OSError) as group:
        for leaf in _leaves(group):
            if isinstance(leaf, ValueError) and type(leaf) is ValueError:
                raise
            log.error(str(leaf), extra={"action": "cannot_start"})
        return_status = 2
    except* KeyboardInterrupt:
        return_status = 130
    return return_status


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for leaf in group.exceptions:
        if isinstance(leaf, BaseExceptionGroup):
            yield from _leaves(leaf)
        else:
            yield leaf


def _run(settings: Settings, serve: Serve, *, own_signals: bool) -> None:
    async def main() -> None:
        stop = asyncio.Event()
        if own_signals:
            _stop_on_signals(stop)
        await serve(settings, stop)
        log.info("stopped", extra={"action": "stopped"})

    with contextlib.ExitStack() as stack:
        if sys.platform == "win32":
            runner = stack.enter_context(asyncio.Runner())
        else:
            import uvloop

            runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        runner.run(main())


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def on_signal(signum: int) -> None:
        if stop.is_set():
            os._exit(128 + signum)
        log.info(
            "stopping; once more ends it at once", extra={"action": "stopping", "signal": signal.Signals(signum).name}
        )
        stop.set()

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, on_signal, signum)


def mcp_url(host: str, port: int, path: str) -> str:
    """The URL a client on this machine uses for a bound address."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{port}{path}"


ENOUGH_FILES = 65_536
"""Files a process asks for: the sockets of 10,000 callers, those of daemons that died, and its other files."""


def raise_limit(wanted: int = ENOUGH_FILES) -> None:
    """Let the process open so many files, or as many as it may. Service managers and shells allow 1024 unless asked."""
    limits = limits_now()
    if limits is None:
        return
    import resource

    soft, hard = limits
    enough = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))


def limits_now() -> tuple[int, int] | None:
    """How many files it may open, and how many it may ask for; None where there is no such limit."""
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)
