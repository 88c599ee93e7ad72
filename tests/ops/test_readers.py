"""`ops.readers`: a command whose reader went away ends without a word."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ledger.seal import SealKeys
from ops.processes import announce
from ops.readers import UNREAD, unless_unread

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes there end differently")


def run_unread(*arguments: str, unbuffered: bool, **env: str) -> tuple[int, str]:
    """Run a command into a pipe that nobody reads; its exit status, and what it said on standard error."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("FMSG_")}
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fmsg_mcpd", *arguments],
            env={**inherited, "PYTHONUNBUFFERED": "1" if unbuffered else "", **env},
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)
    return done.returncode, done.stderr


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize(
    "command",
    [
        "status",
        "status --json",
        "status --watch --json --every 0.1",
        "caller @ann@a.test",
        "caller @ann@a.test --json",
        "doctor --only configuration",
        "doctor --only configuration --json",
        "keygen",
    ],
)
def test_a_reader_that_goes_away_gets_no_traceback(command: str, unbuffered: bool, redis_url: str) -> None:
    env = {
        "FMSG_API_URL": "https://api.example.com",
        "FMSG_REDIS_URL": redis_url,
        "FMSG_SEAL_KEY": SealKeys.generate(),
    }
    assert run_unread(*command.split(), unbuffered=unbuffered, **env) == (UNREAD, "")


def test_help_that_nobody_reads() -> None:
    assert run_unread("status", "--help", unbuffered=False) == (UNREAD, "")


def test_a_broken_pipe_of_something_else_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    def run() -> int:
        raise BrokenPipeError("a connection")

    with pytest.raises(BrokenPipeError, match="a connection"):
        unless_unread(run)


def test_the_exit_status_is_the_commands_own(capfd: pytest.CaptureFixture[str]) -> None:
    assert unless_unread(lambda: 3) == 3

    def run() -> int:
        raise SystemExit(2)

    with pytest.raises(SystemExit) as ended:
        unless_unread(run)
    assert ended.value.code == 2


def test_a_server_that_nobody_listens_to_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(text: str, *, flush: bool) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("builtins.print", closed)
    announce(front=1)
