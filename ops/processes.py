"""Child processes of demo, fleet run and bench: they announce that they are ready, and end with their parent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STOP_GRACE_S = 10.0
"""How long a child may take to end after SIGTERM before it is killed. A front needs less to drain idle waits."""

PARENT_VARIABLE = "_FMSG_MCPD_PARENT"
"""Tells a child its parent's process id: the child ends when the parent does, also when the parent is killed."""

READY_S = 30.0
"""How long a child may take to announce itself. A cold machine compiles bytecode first."""


class ChildFailed(Exception):
    """A child process ended, or did not announce itself in time. The text holds the end of its output."""


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Our environment without its FMSG_ variables, with the given ones, for a child that is to end when we do."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("FMSG_")}
    return {**inherited, **extra, PARENT_VARIABLE: str(os.getpid())}


class Child:
    """One `fmsg-mcpd` process. Lines of JSON on its standard output are its announcements; the rest goes to its log."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log
        self.announced: list[dict[str, Any]] = []
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read())  # ended by `stop`

    @classmethod
    async def start(cls, name: str, *arguments: str, env: Mapping[str, str], log_dir: Path) -> Child:
        """Start ``fmsg-mcpd`` with the arguments. ``env`` is added to a copy of ours without its FMSG_ variables."""
        log = log_dir / f"{name}.log"
        with log.open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # else a directory `fmsg_mcpd` in the working directory would be run
                "-m",
                "fmsg_mcpd",
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=sink,
                env=child_environment(env),
                start_new_session=True,
            )
        return cls(name, process, log)

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended yet."""
        return self.process.returncode is None

    async def _read(self) -> None:
        if self.process.stdout is None:
            raise ChildFailed(f"{self.name} was started without a pipe")
        async for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                value = json.loads(line)
                if isinstance(value, dict):
                    self.announced.append(value)
                    self._news.set()
        self._news.set()

    async def announcement(self, key: str, *, count: int = 1, within_s: float = READY_S) -> list[dict[str, Any]]:
        """Wait for ``count`` announcements that have the key. Raises `ChildFailed`."""
        try:
            async with asyncio.timeout(within_s):
                while len(found := [item for item in self.announced if key in item]) < count:
                    if self._reader.done():
                        raise ChildFailed(f"{self.name} ended before it was ready:\n{self.tail()}")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise ChildFailed(f"{self.name} was not ready after {within_s:g} s:\n{self.tail()}") from None
        return found

    def tail(self, *, lines: int = 15) -> str:
        """The end of the child's log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def kill(self, signum: int = signal.SIGKILL) -> None:
        """Send a signal. Nothing happens where the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signum)

    async def stop(self, grace_s: float = STOP_GRACE_S) -> int:
        """End it: SIGTERM, and SIGKILL after a grace. Returns the exit status."""
        if self.running:
            self.kill(signal.SIGTERM)
            try:
                async with asyncio.timeout(grace_s):
                    await self.process.wait()
            except TimeoutError:
                self.kill()
                await self.process.wait()
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        return self.process.returncode if self.process.returncode is not None else -1


def announce(**values: object) -> None:
    """Tell the parent process something, as one line of JSON on standard output. A parent need not listen.

    A person at a terminal is told the same in words.
    """
    said = json.dumps(values)
    if sys.stdout.isatty():
        said = "\n".join(f"{name.replace('_', ' ')}: {value}" for name, value in values.items() if value is not None)
    with contextlib.suppress(BrokenPipeError):
        print(said, flush=True)


def end_with_parent(parent_pid: int) -> None:
    """Linux: have the kernel end this process when its parent ends. Elsewhere the parent's own clean-up has to do."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent_pid:
            os._exit(1)
