"""`ops.demo`: what it prints when all holds, and that it says so when a step does not."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from ops import interop
from ops.demo import demo

pytestmark = pytest.mark.processes


def test_the_demo_walks_through_seven_steps(capsys: pytest.CaptureFixture[str]) -> None:
    """Each step with what was checked; exit status 0."""
    assert demo(keep=False, verbose=False) == 0
    text = capsys.readouterr().out
    for number in range(1, 8):
        assert f"\n  {number}. " in text
    assert "Push to wait-result" in text


@pytest.mark.parametrize(
    ("how", "ends", "last"), [("--keep", signal.SIGINT, "\nStopped.\n"), ("--page", signal.SIGTERM, "Stopped.\n")]
)
async def test_it_stays_on_request_tells_how_to_connect_and_ends_in_order(
    how: str, ends: signal.Signals, last: str
) -> None:
    """Read through a pipe, as it comes. To be told to end is no failure then: `make` has nothing to complain of."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fmsg_mcpd",
        "demo",
        how,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        while not lines or not lines[-1].startswith("Then ask"):
            line = await process.stdout.readline()
            assert line, "".join(lines)
            lines.append(line.decode())
        process.send_signal(ends)
        rest = (await process.stdout.read()).decode()
        status = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = "".join(lines)
    assert text.count("claude mcp add --transport http") == 2
    assert text.count("FMSG_API_URL=http://127.0.0.1:") == 2
    assert "fmsg-alice" in text
    assert "fmsg-bob" in text
    assert "Open the page:  http://127.0.0.1:" in text
    assert (status, rest) == (0, last)


def test_a_step_that_does_not_hold_is_told_and_fails_the_demo(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of the step, what was expected and what came; exit status 1, no traceback."""

    async def wrong(self: interop.Interop) -> str:
        interop.expect(False, "a reaction id", None)
        return ""

    monkeypatch.setattr(interop.Interop, "_react", wrong)
    assert demo(keep=False, verbose=True) == 1
    text = capsys.readouterr().out
    assert "6. FAILED: expected a reaction id, got None" in text
    assert "--- front-here" in text
