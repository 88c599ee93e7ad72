"""`ops.bench.run`: all scenarios, tiny, on real processes; and what is refused. Structure only, never times."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ops.bench.aims import AIMS
from ops.bench.figures import read, write
from ops.bench.run import PLAYS, SCENARIOS, BenchOptions, BenchRefused, bench, play

linux = pytest.mark.skipif(sys.platform != "linux", reason="the bench reads /proc")


@linux
async def test_a_tiny_run_measures_every_scenario() -> None:
    said: list[str] = []
    run = await play(BenchOptions(size="tiny"), say=said.append)
    assert [scene.name.replace(" ", "-") for scene in run.scenes] == list(SCENARIOS)
    assert len(said) == len(SCENARIOS)
    assert read(write(run)) == run
    assert [failure for scene in run.scenes for failure in scene.failures] == []
    for scene in run.scenes:
        assert scene.figures, scene.name
    hold = next(scene for scene in run.scenes if scene.name == "hold").figures
    assert hold["held at the end of 10 (as the front counts)"].value == 10
    assert hold["connections cut or calls refused"].value == 0
    assert hold["upstream sockets per caller, most"].value == 1
    together = next(scene for scene in run.scenes if scene.name == "crowd").figures
    assert together["held at the same time, as the fronts count"].value == 8
    assert together["callers whose wait ran out and was renewed"].value == 8
    names = {(scene.name, name.partition(": ")[2]) for scene in run.scenes for name in scene.figures}
    for aim in AIMS:
        where, _, what = aim.figure.partition(": ")
        if where in ("1,000", "10,000"):
            assert (aim.scene, what) in names, aim.figure


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (BenchOptions(url="https://127.0.0.1:1/mcp", keys="k"), "no TLS"),
        (BenchOptions(url="http://mcp.example.org/mcp", keys="k"), "not this machine"),
        (BenchOptions(url="http://127.0.0.1:1/mcp"), "--keys"),
        (BenchOptions(url="http://127.0.0.1:1/mcp", keys="k", scenarios=("crowd",)), "servers of its own"),
        (BenchOptions(url="http://127.0.0.1:1/mcp", keys="k", scenarios=("stdio", "tools")), "--only stdio"),
    ],
)
async def test_what_the_bench_does_not_do(options: BenchOptions, told: str) -> None:
    with pytest.raises(BenchRefused, match=told):
        await play(options)


@linux
def test_a_server_that_is_not_there_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# of two callers\nfmsgk_a\nfmsgk_b\n")
    assert bench(BenchOptions(url="http://127.0.0.1:1/mcp", keys=str(keys))) == 2
    assert capsys.readouterr().err.startswith("fmsg-mcpd bench: ")


@linux
def test_a_report_without_the_library_that_draws_it_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert bench(BenchOptions(report=str(tmp_path))) == 2
    assert "pip install matplotlib" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


@linux
def test_a_process_is_named_with_its_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = tmp_path / "keys"
    keys.write_text("fmsgk_a\nfmsgk_b\n")
    assert bench(BenchOptions(url="http://127.0.0.1:1/mcp", keys=str(keys), pids=("front",))) == 2
    assert "NAME=PID" in capsys.readouterr().err


def test_the_command_line_knows_every_scenario() -> None:
    from ops.cli import parser

    for name in SCENARIOS:
        assert parser().parse_args(["bench", "--only", name]).scenarios == [name]
    assert set(PLAYS) < set(SCENARIOS)
