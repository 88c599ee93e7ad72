from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from ops.status.picture import Picture, QueueState
from ops.status.show import plain, pretty, to_json
from tests.ops.pictures import callers, daemon, picture, process


def test_what_is_well_is_short() -> None:
    text = plain(picture())
    assert text.startswith("2026-09-21 14:13:20 UTC, all is well\n\nDAEMONS\n  name ")
    rows = [line.split() for line in text.splitlines()]
    assert ["box-1", "50", "50", "%", "50", "120", "ms", "0", "24", "h", "1.0.0", "box:9100"] in rows
    assert ["box-1", "7", "-", "24", "h", "1.0.0", "box:9100"] in rows
    assert ["box-1", "2", "ms", "24", "h", "1.0.0", "box:9100"] in rows
    assert (
        "CALLERS  100 active, 100 live\nQUEUE    1 jobs, 2 deferred tasks\nREDIS    redis://127.0.0.1:6379, 0.2 ms"
        in text
    )
    assert text.endswith("Redis 7.2.4, 5 MiB of 100 MiB used")


def test_problems_come_first() -> None:
    lines = plain(picture(daemons=(), processes=())).splitlines()
    assert lines[0].endswith("3 problems")
    assert lines[1].startswith("BAD      no daemon runs")
    assert lines[2].startswith("         -> Start one")
    assert "DAEMONS  none" in lines
    assert "FRONTS   none" in lines


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (picture(daemons=(daemon("box-1", draining=True, process=None),)), "box-1  50     50 %   -"),
        (picture(processes=(process("front", draining=1.0),)), "draining"),
        (picture(processes=(process("stdio"),)), "stdio box-1"),
        (picture(callers=callers(active=500, looked_at=100)), "500 active, of the first 100, 100 live"),
        (
            picture(callers=callers(live=97, states={"asking": 3}, needs_credential=3)),
            "97 live, 3 asking, 3 that need a new token",
        ),
        (picture(queue=QueueState(jobs=4, late_s=20.0)), "4 jobs (20 s late), 2 deferred tasks"),
        (picture(queue=QueueState(error="away")), "unknown, 2 deferred tasks"),
        (picture(server=None), "redis://127.0.0.1:6379, 0.2 ms away"),
        (picture(processes=(process("front", loop_lag_s=2.5),)), "2.5 s"),
        (
            picture(processes=(process("front", silent_s=40.0, waits_held=7.0),)),
            "-      -         24 h  1.0.0    box:9100  silent for 40 s",
        ),
        (picture(processes=(process("daemon", "box-9", silent_s=40.0),)), "1.0.0    box:9100  silent for 40 s"),
        (picture(processes=(process("worker", ended=1.0),)), "ended"),
    ],
)
def test_what_else_is_shown(shown: Picture, words: str) -> None:
    assert words in plain(shown)


def test_tables_show_the_same() -> None:
    console = Console(file=io.StringIO(), width=160)
    console.print(pretty(picture(daemons=(), deferred=5000)))
    text = console.file.getvalue()  # type: ignore[attr-defined]  # the StringIO from above
    assert "no daemon runs" in text
    assert "5000 deferred tasks" in text
    for title in ("DAEMONS", "FRONTS", "WORKERS", "CALLERS", "QUEUE", "REDIS"):
        assert title in text
    assert "box:9100" in text


def test_json_has_it_all() -> None:
    told = msgspec.json.decode(to_json(picture(daemons=())))
    assert told["problems"][0]["level"] == "bad"
    assert told["callers"]["live"] == 100
    assert told["well"] is False
    assert msgspec.json.decode(to_json(picture()))["well"] is True
    assert {one["role"] for one in told["processes"]} == {"daemon", "front", "worker"}


def test_an_all_in_one_misses_no_worker() -> None:
    shown = plain(picture(processes=(process("up"),)))
    assert "WORKERS  none of their own: `fmsg-mcpd up` does the jobs" in shown
    assert "WORKERS  none" in plain(picture(processes=(process("front"),)))
