"""`tests.ops.bench.compare`: what is seen to be worse, and two real trees measured in turn."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ops.bench.figures import Run, Scene
from tests.ops.bench.compare import compared, main, table
from tests.ops.bench.test_figures import a_run


def took(*, ms: float, per_s: float, bare: float = 1.0, count: float = 1.0) -> Run:
    """A run with a time, a rate beside a yardstick, and a count."""
    scene = Scene(name="tools", title="", how="")
    scene.note("time", ms, "ms")
    scene.note("rate", per_s, "/s", bare=bare)
    scene.note("held", count, "")
    return a_run(scene)


def test_what_is_worse_in_every_round_is_seen_and_named_first() -> None:
    before = [took(ms=10.0, per_s=100.0), took(ms=11.0, per_s=120.0)]
    after = [took(ms=12.0, per_s=110.0), took(ms=13.0, per_s=130.0)]
    time, rate = compared(before, after)
    assert (time.name, time.worse, round(time.change, 2)) == ("tools: time", True, 0.19)
    assert (rate.name, rate.worse, rate.change < 0) == ("tools: rate", False, True)
    assert table([time, rate]).splitlines()[0].split()[-3:] == ["worse", "tools:", "time"]


@pytest.mark.parametrize("noise", [1.0, 2.0])
def test_a_machine_that_is_slower_for_a_while_makes_nothing_worse(noise: float) -> None:
    """The yardstick was slower, too; and where there is none, the rounds overlap."""
    before = [took(ms=10.0, per_s=100.0), took(ms=10.0 * noise, per_s=100.0 / noise, bare=1.0 / noise)]
    after = [took(ms=10.0 * noise, per_s=100.0 / noise, bare=1.0 / noise), took(ms=10.0, per_s=100.0)]
    found = compared(before, after)
    assert [one.name for one in found if one.worse] == []
    assert next(one for one in found if one.name == "tools: rate").change == 0.0


def test_a_figure_that_one_tree_does_not_have_is_left_out() -> None:
    newer = took(ms=1.0, per_s=1.0)
    newer.scenes[0].note("new", 1.0, "ms")
    newer.scenes[0].note("none", 0.0, "ms")
    assert {one.name for one in compared([took(ms=1.0, per_s=1.0)], [newer])} == {"tools: time", "tools: rate"}


def test_a_commit_that_is_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-commit", "--rounds", "1"]) == 2
    assert "worktree add --detach" in capsys.readouterr().err


@pytest.mark.processes
def test_two_trees_are_measured_and_nothing_stays_behind(capfd: pytest.CaptureFixture[str]) -> None:
    here = Path(__file__).parents[3]
    if subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, check=False).returncode:
        pytest.skip("no git checkout")
    assert main(["--rounds", "1", "--size", "tiny", "--only", "stdio"]) in (0, 1)
    printed = capfd.readouterr()
    assert "stdio: spawn to whoami answered" in printed.out
    assert printed.err.count("round 1: ") == 2
    trees = subprocess.run(["git", "worktree", "list"], cwd=here, capture_output=True, text=True, check=True).stdout
    assert "fmsg-compare-" not in trees
