"""`telemetry.plain`: what a quick process logs says as much as the others' logs, and no more."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest

from telemetry import plain

KEY = "fmsgk_" + "ab12cd34_" + "q+W/x9Zk3mPp0s8Vd7Tt6Rr5Yy4Uu3Ii2Oo1=="


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """Logs of a test, in a string; the process's own logging comes back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    plain.configure(level="info", stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def test_a_line_says_what_came_with_it(written: io.StringIO) -> None:
    """A tool call is of use in a log with its tool, outcome and time."""
    logging.getLogger("mcp_front.audit").info(
        "tool call", extra={"action": "tool_call", "tool": "whoami", "outcome": "ok", "duration_s": 0.25}
    )
    line = written.getvalue().rstrip("\n")
    assert line.endswith("INFO mcp_front.audit tool_call: tool call duration_s=0.25 outcome=ok tool=whoami")
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", line), "the time is UTC, as in the other logs"


def test_a_line_without_anything_has_its_action(written: io.StringIO) -> None:
    """What others log is filed under their name."""
    logging.getLogger("aiohttp.client").warning("odd %s", "answer")
    assert written.getvalue().endswith("WARNING aiohttp.client client: odd answer\n")


def test_a_key_is_scrubbed_wherever_it_hides(written: io.StringIO) -> None:
    """In the sentence, what came with it, and a traceback."""
    log = logging.getLogger("anywhere")
    try:
        raise RuntimeError(f"refused {KEY}")
    except RuntimeError:
        log.exception("sent %s", KEY, extra={"headers": {"Authorization": [f"Bearer {KEY}"]}})
    text = written.getvalue()
    assert "q+W/x9Zk" not in text
    assert "refused" in text
    assert "Traceback" in text
