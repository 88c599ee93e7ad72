"""A small version of ``make attack``: every attack once, at a fiftieth of its size, beside a few ordinary callers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.attack.clients import ATTACKS
from tests.attack.host import answers
from tests.attack.run import CASES, HOST_LIES, Verdict, attack, line_of, main

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at the process through /proc"),
]

SCALE = 0.02


async def test_ordinary_callers_notice_nothing(tmp_path: Path) -> None:
    """Nothing is lost, no call fails. How long it takes says nothing on a busy machine, and is not asked."""
    told: list[Verdict] = []
    verdicts = await attack(CASES, tmp_path, callers=8, scale=SCALE, tell=told.append)
    assert [verdict.case for verdict in verdicts] == [case.name for case in CASES]
    assert [line_of(verdict) for verdict in verdicts if not verdict.unnoticed] == []
    assert sum(verdict.woken for verdict in verdicts) > len(CASES)
    log = (tmp_path / "up.log").read_text()
    assert "Traceback" not in log, log[log.index("Traceback") :][:3000]
    assert "fmsgk_" not in log


def test_the_cases_are_all_there_are() -> None:
    assert {case.client for case in CASES} == set(ATTACKS)
    assert set(HOST_LIES) == set(answers(0.001))


def test_a_verdict_is_a_line_that_marks_what_was_noticed() -> None:
    verdict = Verdict(
        case="spaces",
        seconds=1.0,
        healthz_s=0.2,
        healthz_p99_s=0.1,
        peak_mb=100.0,
        memory_mb=90.0,
        woken=3,
        wake_p50_s=0.01,
        wake_p99_s=0.02,
        missing=1,
        again=0,
        failures={"Dropped: x": 2},
    )
    line = line_of(verdict)
    assert "healthz    200 ms" in line
    assert "1 missing" in line
    assert "2 failed" in line
    assert line.endswith("! NOTICED")


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(SystemExit):
        main(["--nonsense"])
