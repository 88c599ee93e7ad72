"""`ops.bench.report` and `ops.bench.plot`: a page that says what was reached, and pictures that are XML."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from ops.bench.figures import Scene, read
from ops.bench.plot import plot
from ops.bench.report import BEGIN_NOTES, END_NOTES, printed, publish
from tests.ops.bench.test_figures import a_run

ROOT = Path(__file__).parents[3]


def a_scene() -> Scene:
    """A scene with two figures that have aims."""
    scene = Scene(name="hold", title="Waiting callers", how="They wait.")
    scene.note("10,000: front memory per caller", 40.0, "kB", bare=10.0)
    scene.note("10,000: daemon memory per caller", 13.0, "kB")
    scene.series["front memory per caller, kB"] = [(100, 41.0), (1_000, 40.5), (10_000, 40.0)]
    scene.failures.append("one call was cut")
    return scene


def test_the_page_has_aims_figures_failures_and_pictures(tmp_path: Path) -> None:
    publish(a_run(a_scene()), tmp_path)
    page = (tmp_path / "performance.md").read_text()
    assert "| front memory per held wait | ≤ 22 kB | 40 kB | **not reached** |" in page
    assert "| daemon memory per caller | ≤ 14 kB | 13 kB | reached |" in page
    assert "not measured" in page
    assert "one call was cut" in page
    assert "| 10,000: front memory per caller | 40 kB |  | 10 kB | 4 |" in page
    assert "performance/hold-memory.svg" in page
    ElementTree.parse(tmp_path / "performance" / "hold-memory.svg")
    assert read((tmp_path / "performance" / "run.json").read_bytes()).scenes[0].name == "hold"


def test_what_was_written_by_hand_is_kept(tmp_path: Path) -> None:
    publish(a_run(a_scene()), tmp_path)
    page = tmp_path / "performance.md"
    page.write_text(page.read_text().replace(BEGIN_NOTES, f"{BEGIN_NOTES}\n\nWhere it goes: there."))
    publish(a_run(a_scene()), tmp_path)
    text = page.read_text()
    assert text.count("Where it goes: there.") == 1
    assert text.index(BEGIN_NOTES) < text.index("Where it goes") < text.index(END_NOTES)


def texts(picture: Path) -> list[str]:
    """What is written in a picture: its title, ticks, axis and legend."""
    return [element.text or "" for element in ElementTree.parse(picture).iter() if element.tag.endswith("}text")]


def test_a_plot_names_its_points_and_its_series_in_whole_numbers(tmp_path: Path) -> None:
    series = {"x & y": [(100, 2.0), (20_000, 3000.0)], "z": [(100, 1.0)]}
    (tmp_path / "plot.svg").write_text(plot("a < b", series, x="<count>", log_x=True))
    found = texts(tmp_path / "plot.svg")
    assert {"a < b", "<count>", "x & y", "z", "100", "20,000", "3,000"} <= set(found)
    assert not [text for text in found if "e+" in text]


def test_one_series_needs_no_legend(tmp_path: Path) -> None:
    (tmp_path / "plot.svg").write_text(plot("nothing", {"none": [(5, 0.0)]}, x="x"))
    assert "none" not in texts(tmp_path / "plot.svg")


def test_the_same_figures_make_the_same_file() -> None:
    assert plot("t", {"s": [(1, 2.0), (2, 3.0)]}, x="x") == plot("t", {"s": [(1, 2.0), (2, 3.0)]}, x="x")


def test_figures_and_aims_are_printed() -> None:
    text = printed(a_run(a_scene()))
    assert re.search(r"^  10,000: front memory per caller +40 kB +10 kB +4$", text, re.MULTILINE)
    assert re.search(r"^  front memory per held wait +≤ 22 kB +40 kB +NOT REACHED$", text, re.MULTILINE)
    assert "Waiting callers" in text


def test_the_published_page_is_the_one_its_run_makes(tmp_path: Path) -> None:
    published = ROOT / "docs" / "performance.md"
    (tmp_path / "performance.md").write_text(published.read_text())
    publish(read((ROOT / "docs" / "performance" / "run.json").read_bytes()), tmp_path)
    assert (tmp_path / "performance.md").read_text() == published.read_text()
    pictures = sorted(picture.name for picture in (tmp_path / "performance").glob("*.svg"))
    assert pictures == sorted(picture.name for picture in (ROOT / "docs" / "performance").glob("*.svg"))
    for name in pictures:
        drawn, shown = (texts(folder / name) for folder in (tmp_path / "performance", ROOT / "docs" / "performance"))
        assert drawn == shown, name
