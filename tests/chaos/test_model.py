"""Random cases against the oracle, and the cases that once broke a promise."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ledger.values import Arrival
from mcp_front.waiting import decide
from tests.chaos.model import CASES, failure_of, main, shrink
from tests.chaos.model_case import Case, Consumer, Op, make_case
from tests.chaos.model_oracle import Broken, play

SEEDS_PER_TEST = 80
TESTS = 25
"""Two thousand cases: some thirty seconds of the suite on two cores. `make model` plays as many as one likes."""


@pytest.mark.parametrize("first", range(0, TESTS * SEEDS_PER_TEST, SEEDS_PER_TEST))
def test_nothing_is_lost_and_nothing_comes_twice_unmarked(first: int) -> None:
    """A simulated host, feed, store and agents, with whatever can happen to them, by seed."""
    for seed in range(first, first + SEEDS_PER_TEST):
        failure = failure_of(make_case(seed))
        assert failure is None, f"seed {seed}: {failure}; shrink it with python -m tests.chaos.model --seed {seed}"


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem.replace("_", " "))
def test_a_case_that_once_broke_a_promise(path: Path) -> None:
    """Found by the model, kept since."""
    play(msgspec.json.decode(path.read_bytes(), type=Case))


def test_the_oracle_notices_what_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A front that swallows a message: the model says so, and shrinks the case to next to nothing."""
    judge = decide._Scan._verdict

    def swallow(scan: decide._Scan, entry: Arrival) -> decide.Verdict:
        return "own" if entry.id == 7 else judge(scan, entry)

    monkeypatch.setattr(decide._Scan, "_verdict", swallow)
    ops = tuple(Op(at_s=float(id_), kind="message", id=id_) for id_ in range(1, 10))
    case = Case(ops=ops, consumers=(Consumer(at_s=0.0, start="now", seed=1),))
    with pytest.raises(Broken, match=r"lost \[7\]"):
        play(case)
    assert [op.id for op in shrink(case).ops] == [7]


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """It says the seed it begins with and how many cases it played."""
    assert main(["--seconds", "0.2", "--seed", "3"]) == 0
    assert "first seed 3" in capsys.readouterr().out
