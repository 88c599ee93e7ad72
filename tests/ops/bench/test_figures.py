"""`ops.bench.figures` and `ops.bench.aims`: a run goes to JSON and back, and aims are read from it."""

from __future__ import annotations

import pytest

from ops.bench.aims import AIMS, Aim, shown
from ops.bench.figures import Machine, Run, Scene, read, write


def a_run(*scenes: Scene) -> Run:
    """A run with these scenes."""
    machine = Machine(cores=2, python="3.11", system="Linux", load_before=0.1, load_after=0.2)
    return Run(
        began="2026-01-01T00:00:00+00:00",
        took_s=1.0,
        target="own processes",
        size="tiny",
        machine=machine,
        scenes=list(scenes),
    )


def a_scene() -> Scene:
    """A scene with a figure of each kind."""
    scene = Scene(name="hold", title="Waiting callers", how="They wait.")
    scene.note("once", 3.0, "kB", bare=1.5)
    scene.note("later", 3.6, "kB")
    scene.note_rounds("rounds", [1.0, 5.0, 2.0], "/s", bare=[4.0, 8.0])
    scene.note_times("times", [float(number) for number in range(100)])
    scene.series["memory, kB"] = [(100, 30.0), (1_000, 29.0)]
    return scene


def test_a_run_survives_its_json() -> None:
    run = a_run(a_scene())
    assert read(write(run)) == run


def test_the_figures_of_rounds_and_times() -> None:
    scene = a_scene()
    rounds = scene.figures["rounds"]
    assert (rounds.value, rounds.low, rounds.high, rounds.bare) == (2.0, 1.0, 5.0, 6.0)
    assert scene.figures["times"].percentiles is not None
    assert scene.figures["once"].ratio == 2.0
    assert scene.figures["later"].ratio is None


@pytest.mark.parametrize(
    ("aim", "found", "holds"),
    [
        (Aim("", "hold", "once", most=3), 3.0, True),
        (Aim("", "hold", "once", most=2), 3.0, False),
        (Aim("", "hold", "once", least=4), 3.0, False),
        (Aim("", "hold", "once", of="ratio", least=2), 2.0, True),
        (Aim("", "hold", "times", of="p99", most=100), 99.0, True),
        (Aim("", "hold", "later", of="growth", since="once", most=20), 20.0, True),
    ],
)
def test_an_aim_reads_its_number(aim: Aim, found: float, holds: bool) -> None:
    number = aim.reached(a_run(a_scene()))
    assert number == pytest.approx(found)
    assert aim.holds(round(found, 6)) is holds


def test_an_aim_without_its_figure_is_not_measured() -> None:
    assert Aim("", "wake", "none", most=1).reached(a_run(a_scene())) is None
    assert Aim("", "hold", "later", of="growth", since="none", most=1).reached(a_run(a_scene())) is None
    assert Aim("", "hold", "once", of="p99", most=1).reached(a_run(a_scene())) is None


def test_every_aim_has_one_bound() -> None:
    for aim in AIMS:
        assert (aim.most is None) != (aim.least is None), aim.what
        assert aim.bound()[0] in "≤≥"


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.123, "0.12"), (12.345, "12.3"), (1234.5, "1,234"), (float("inf"), "–")]
)
def test_numbers_are_shown_short(value: float, text: str) -> None:
    assert shown(value) == text
