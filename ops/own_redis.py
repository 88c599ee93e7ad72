"""The redis-server that `fmsg-mcpd up` starts for itself: its directory, its life, and the way to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

from fmsg.backoff import full_jitter
from ledger.embedded import EmbeddedRedis, NoServer
from ops.settings import SettingError

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.25
"""Between looks whether the server still runs: a server that died is back within a second."""

ASK_EVERY_S = 5.0
"""Between questions whether a running server answers."""

HUNG_S = 30.0
"""A server that does not answer for so long is killed and started again. Loading or saving data takes less."""

GIVEN_UP_AFTER = 8
"""Starts in a row that may fail, over about a minute. Then `up` ends with an error, and its service manager decides."""


def private(directory: Path) -> Path:
    """The directory, made if needed, for its owner alone. Raises `SettingError`.

    A directory that others may look into is closed only where it is empty or holds this server's data: any other may
    have been named by mistake.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
        if os.name == "nt":
            return directory
        if status.st_uid != os.geteuid():
            raise SettingError(
                f"--data-dir: {directory} belongs to another user. Give it to the one that runs `up` (chown), or name "
                "another directory."
            )
        if stat.S_IMODE(status.st_mode) & 0o077:
            if any(directory.iterdir()) and not (directory / CONFIGURATION).exists():
                raise SettingError(
                    f"--data-dir: {directory} holds other files and is open to other users. Name a directory of its "
                    "own, or close it (chmod 700)."
                )
            directory.chmod(0o700)
            log.warning("data directory closed to other users", extra={"action": "data_dir_closed"})
    except OSError as error:
        raise SettingError(
            f"--data-dir: {directory} cannot be used ({error.strerror}). Name a directory that you may write to."
        ) from None
    return directory


CONFIGURATION = "server.conf"
"""The file in the data directory that says where its server listens, and its password."""


def url_in(directory: Path) -> str:
    """The URL of the server whose data a directory holds. Raises `SettingError`."""
    path = directory / CONFIGURATION
    try:
        lines = dict(line.partition(" ")[::2] for line in path.read_text().splitlines())
        return f"redis://:{lines['requirepass']}@127.0.0.1:{int(lines['port'])}/0"
    except OSError as error:
        raise SettingError(
            f"--data-dir: {path} cannot be read ({error.strerror}). Name the directory that `fmsg-mcpd up` was given, "
            "as the user that runs it."
        ) from None
    except (KeyError, ValueError):
        raise SettingError(
            f"--data-dir: {path} was not written by `fmsg-mcpd up`. Name the directory that it was given."
        ) from None


@contextlib.asynccontextmanager
async def own_redis(directory: Path | None) -> AsyncIterator[EmbeddedRedis]:
    """Run a server while the context is open; `keep_running` looks after it. Raises `SettingError`."""
    if directory is not None:
        private(directory)
    try:
        async with EmbeddedRedis(persist=directory is not None, directory=directory) as server:
            kept = "" if directory else "; without --data-dir nothing survives a stop"
            log.info(
                f"redis-server started{kept}",
                extra={"action": "redis_started", "pid": server.pid, "kept": directory is not None},
            )
            yield server
    except NoServer as error:
        raise SettingError(f"{error} Or set FMSG_REDIS_URL to a Redis that runs.") from None


async def keep_running(server: EmbeddedRedis, *, kept: bool, rng: random.Random, stop: asyncio.Event) -> None:
    """Start the server again whenever it ends or hangs, until ``stop`` is set. ``kept``: its data outlives that.

    Raises `NoServer` where it cannot be started again.
    """
    while True:
        why = await _trouble(server, stop)
        if why is None:
            return
        began_s = time.monotonic()
        log.error(
            f"redis-server {why} and is started again; "
            + ("its data is kept" if kept else "its data is lost, since there is no --data-dir"),
            extra={"action": "redis_ended"},
        )
        if not await _start_again(server, rng, stop):
            return
        log.warning(
            "redis-server runs again",
            extra={"action": "redis_restarted", "pid": server.pid, "lost_s": round(time.monotonic() - began_s, 2)},
        )


async def _trouble(server: EmbeddedRedis, stop: asyncio.Event) -> str | None:
    """Why the server has to be started again, once it has; None once ``stop`` is set."""
    answered_s = asked_s = time.monotonic()
    while not stop.is_set():
        if server.pid is None:
            return "ended"
        now_s = time.monotonic()
        if now_s - asked_s >= ASK_EVERY_S:
            asked_s = now_s
            if await asyncio.to_thread(server.answers):
                answered_s = time.monotonic()
            elif time.monotonic() - answered_s >= HUNG_S:
                return f"does not answer for {HUNG_S:g} s"
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_EVERY_S)
    return None


async def _start_again(server: EmbeddedRedis, rng: random.Random, stop: asyncio.Event) -> bool:
    """Whether it runs again; False once ``stop`` is set."""
    pauses_s = full_jitter(rng, base_s=0.5, cap_s=30.0)
    for attempt in range(1, GIVEN_UP_AFTER + 1):
        try:
            await server.restart_async(empty=False)
        except NoServer as error:
            if attempt == GIVEN_UP_AFTER:
                raise
            log.error(str(error), extra={"action": "redis_not_started", "attempt": attempt})
        else:
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), next(pauses_s))
        if stop.is_set():
            break
    return False
