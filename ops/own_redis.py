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

import msgspec

from fmsg.backoff import backoff_s
from ledger.embedded import EmbeddedRedis, NoServer
from ops.settings import SettingError, Settings

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.25
"""Between looks whether the server still runs: a server that died is back within a second."""

ASK_EVERY_S = 5.0
"""Between questions whether a running server answers."""

HUNG_S = 30.0
"""A server that does not answer for so long is killed and started again. Loading or saving data takes less."""

GIVEN_UP_AFTER = 8
"""Starts in a row, over about a minute. Then `up` ends with an error, and its service manager decides."""

STEADY_S = 60.0
"""A server that ran for so long did not end because of how it was started."""


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


def settings_of(settings: Settings, directory: str | None) -> Settings:
    """The settings, with the Redis whose data a directory holds where one is named. Raises `SettingError`."""
    if directory is None:
        return settings
    return msgspec.structs.replace(settings, redis_url=url_in(Path(directory).expanduser()), queue_redis_url=None)


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

    Raises `NoServer` where it cannot be started again, or ends again and again.
    """
    restarts = Restarts(rng)
    while True:
        began_s = time.monotonic()
        why = await _trouble(server, stop)
        if why is None:
            return
        restarts.ended(after_s=time.monotonic() - began_s)
        log.error(
            f"redis-server {why} and is started again; "
            + ("its data is kept" if kept else "its data is lost, since there is no --data-dir"),
            extra={"action": "redis_ended"},
        )
        lost_s = time.monotonic()
        while not await _is_started(server, restarts, stop):
            if stop.is_set():
                return
        log.warning(
            "redis-server runs again",
            extra={"action": "redis_restarted", "pid": server.pid, "lost_s": round(time.monotonic() - lost_s, 2)},
        )


class Restarts:
    """How long to pause before each start: not at all before the first one, then longer each time."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.ended(after_s=STEADY_S)

    def ended(self, *, after_s: float) -> None:
        """The server ended so long after its start. One that ran for long begins anew."""
        if after_s >= STEADY_S:
            self._tried = 0

    def pause_s(self) -> float | None:
        """The pause before the next start, None where there have been too many."""
        self._tried += 1
        if self._tried > GIVEN_UP_AFTER:
            return None
        return 0.0 if self._tried == 1 else backoff_s(self._tried - 1, self._rng, base_s=1.0, cap_s=30.0, least=0.5)


async def _is_started(server: EmbeddedRedis, restarts: Restarts, stop: asyncio.Event) -> bool:
    """Try to start it, after a pause. Raises `NoServer` for the last attempt."""
    pause_s = restarts.pause_s()
    if pause_s is None:
        raise NoServer(f"redis-server: it ended {GIVEN_UP_AFTER} times in a row. Look at server.log in its directory.")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(pause_s):
            await stop.wait()
    if stop.is_set():
        return False
    try:
        await server.restart_async(empty=False)
    except NoServer as error:
        log.error(str(error), extra={"action": "redis_not_started"})
        return False
    return True


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
            async with asyncio.timeout(LOOK_EVERY_S):
                await stop.wait()
    return None
