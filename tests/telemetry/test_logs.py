"""`telemetry.logs`: one line an event, and no credential in any of them, whoever wrote it."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Iterator

import pytest

from telemetry import logs
from telemetry.logs import SELDOM, SELDOM_S, SeldomFilter

KEY = "fmsgk_" + "ab12cd34_" + "q+W/x9Zk3mPp0s8Vd7Tt6Rr5Yy4Uu3Ii2Oo1=="
"""Has everything that standard base64 allows."""


@pytest.fixture(autouse=True)
def root_logger_restored() -> Iterator[None]:
    """Leave the process's logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def configured(log_format: logs.LogFormat, level: str = "info") -> io.StringIO:
    """Logs of a test, in a string."""
    stream = io.StringIO()
    logs.configure(log_format=log_format, level=level, role="test", stream=stream)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    """The JSON lines written."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_its_action_and_what_came_with_it() -> None:
    """Logs are searched by action, not by sentence."""
    stream = configured("json")
    logging.getLogger("daemon.feed.runner").info(
        "opened", extra={"action": "socket_open", "caller": "c1", "delay_s": 1.5}
    )
    (line,) = lines(stream)
    assert line["action"] == "socket_open"
    assert line["caller"] == "c1"
    assert line["delay_s"] == 1.5
    assert line["event"] == "opened"
    assert line["level"] == "info"
    assert line["role"] == "test"
    assert str(line["timestamp"]).endswith("Z")


def test_every_line_has_an_action_even_a_librarys() -> None:
    """What others log is filed under their name."""
    stream = configured("json")
    logging.getLogger("aiohttp.client").warning("odd answer")
    assert lines(stream)[0]["action"] == "client"


@pytest.mark.parametrize("log_format", ["json", "human"])
def test_a_key_is_scrubbed_wherever_it_hides(log_format: logs.LogFormat) -> None:
    """In the sentence, its arguments, the extras at any depth, and a traceback."""
    stream = configured(log_format)
    log = logging.getLogger("anywhere")
    log.info("sent %s", KEY, extra={"action": "a", "headers": {"Authorization": [f"Bearer {KEY}"]}})
    log.info(KEY, extra={"action": "b", "thing": Exception(KEY)})
    try:
        raise RuntimeError(f"refused {KEY}")
    except RuntimeError:
        log.exception("failed", extra={"action": "c"})
    text = stream.getvalue()
    assert "q+W/x9Zk" not in text
    assert "Oo1==" not in text
    assert "refused" in text
    assert "Traceback" in text


def test_a_warning_is_a_line_like_any_other() -> None:
    """Python's own warnings cannot print a credential around the logs."""
    stream = configured("json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn(f"odd {KEY}", stacklevel=1)
    assert "q+W/x9Zk" not in stream.getvalue()
    assert lines(stream)[0]["level"] == "warning"


def test_the_level_holds() -> None:
    """Below it nothing is written."""
    stream = configured("json", level="warning")
    logging.getLogger("x").info("quiet")
    logging.getLogger("x").warning("loud", extra={"action": "x"})
    assert [line["event"] for line in lines(stream)] == ["loud"]


@pytest.mark.parametrize("odd", ["half of a pair: \ud83d", float("inf"), 2**70, b"bytes", {1: {2: object}}, {3}, None])
def test_a_line_comes_whatever_is_in_it(odd: object) -> None:
    """A log call must not fail for a value that its renderer cannot write."""
    stream = configured("json")
    logging.getLogger("odd").info("odd", extra={"odd": odd})
    assert [line["event"] for line in lines(stream)] == ["odd"]


def test_a_key_with_unseen_characters_among_harmless_values_is_scrubbed() -> None:
    """All texts of a line are looked at together: what breaks a marker up must not hide it from that look."""
    stream = configured("json")
    logging.getLogger("odd").info("calm", extra={"a": "calm", "key": KEY[:3] + "\u200b" + KEY[3:], "n": 7})
    assert KEY[12:20] not in stream.getvalue()


def test_a_line_for_people_says_what_came_with_it() -> None:
    """A tool call is of use in a log with its tool, outcome and time."""
    stream = configured("human")
    logging.getLogger("mcp_front.audit").info(
        "tool call", extra={"action": "tool_call", "tool": "whoami", "outcome": "ok", "duration_s": 0.25}
    )
    time, _, rest = stream.getvalue().rstrip("\n").partition(" ")
    assert rest == "info    mcp_front.audit tool_call: tool call duration_s=0.25 outcome=ok tool=whoami"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)


def test_a_text_in_a_line_is_bounded() -> None:
    stream = configured("json")
    logging.getLogger("odd").info("odd", extra={"text": "x" * 10_000_000})
    assert len(stream.getvalue()) < 2 * logs.MAX_VALUE_CHARS


def test_what_repeats_through_an_outage_is_written_once_a_minute_with_a_count() -> None:
    now_s = 0.0
    stream = configured("json")
    seldom = SeldomFilter(clock=lambda: now_s)
    (handler,) = logging.getLogger().handlers
    handler.filters[:] = [seldom]
    log = logging.getLogger("outage")
    for _ in range(5):
        log.warning("away", extra={"action": "store_away", **SELDOM})
        log.warning("other", extra={"action": "other", **SELDOM})
        log.warning("each", extra={"action": "each"})
    now_s = SELDOM_S
    log.warning("away", extra={"action": "store_away", **SELDOM})
    now_s = 2 * SELDOM_S
    log.warning("away", extra={"action": "store_away", **SELDOM})
    written = [(line["action"], line.get("left_out")) for line in lines(stream) if line["action"] != "each"]
    assert written == [("store_away", None), ("other", None), ("store_away", 4), ("store_away", None)]
    assert sum(line["action"] == "each" for line in lines(stream)) == 5
    assert "seldom" not in stream.getvalue()
