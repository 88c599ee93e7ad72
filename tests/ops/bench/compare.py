"""`make bench-compare`: this tree and an older commit, measured in turn on one machine: noise meets both alike."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from ops.bench.figures import Figure, Run, read

SLOWER_BY = 0.05
"""A figure counts as worse that is so much worse in the median, and its best round worse than the worst before."""

MORE_IS_BETTER = frozenset({"/s"})
"""Units. Of every other one less is better; a figure without a unit is a count and not compared."""

CHILD_S = 3_600.0
"""Longest that one run of the bench may take."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One figure in the rounds of both trees: beside the yardstick of its own run where that has one."""

    name: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    more_is_better: bool

    @property
    def change(self) -> float:
        """How much worse it is in the median: 0.1 for a tenth more of what should be little. Negative: better."""
        before, after = median(self.before), median(self.after)
        return before / after - 1 if self.more_is_better else after / before - 1

    @property
    def apart(self) -> bool:
        """Whether no round of one tree came near any of the other."""
        return max(self.before) < min(self.after) or max(self.after) < min(self.before)

    @property
    def worse(self) -> bool:
        """Whether it is seen to be worse."""
        return self.apart and self.change > SLOWER_BY


def compared(before: Sequence[Run], after: Sequence[Run]) -> list[Compared]:
    """The figures that every run has, the worst change first. Zeros are left out: nothing compares with them."""
    sides = [[_figures(run) for run in runs] for runs in (before, after)]
    runs = [*sides[0], *sides[1]]
    names = [name for name in runs[0] if all(name in run for run in runs)]
    found = [
        Compared(
            name=name,
            before=tuple(_measure(run[name]) for run in sides[0]),
            after=tuple(_measure(run[name]) for run in sides[1]),
            more_is_better=runs[0][name].unit in MORE_IS_BETTER,
        )
        for name in names
    ]
    return sorted((one for one in found if min(*one.before, *one.after) > 0), key=lambda one: -one.change)


def _figures(run: Run) -> dict[str, Figure]:
    return {
        f"{scene.name}: {name}": figure for scene in run.scenes for name, figure in scene.figures.items() if figure.unit
    }


def _measure(figure: Figure) -> float:
    return figure.value if figure.ratio is None else figure.ratio


def table(found: Sequence[Compared]) -> str:
    """The comparison, to be read: worse above, better below."""
    lines = []
    for one in found:
        verdict = "worse" if one.worse else "better" if one.apart and one.change < -SLOWER_BY else ""
        spread = " ".join(f"{min(side):9.3g} – {max(side):<9.3g}" for side in (one.before, one.after))
        lines.append(f"{one.change * 100:+7.1f} % {spread} {verdict:6}  {one.name}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and compare; returns 1 where a figure is seen to be worse, 2 where a run fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.ops.bench.compare", description=__doc__)
    parser.add_argument("commit", nargs="?", default="HEAD", help="what this tree is compared with (default: HEAD)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, in turn")
    parser.add_argument("--size", default="quick", choices=["tiny", "quick", "full"])
    parser.add_argument("--only", action="append", default=[], metavar="SCENARIO", help="as for `fmsg-mcpd bench`")
    options = parser.parse_args(argv)
    arguments = ["--size", options.size, *(word for name in options.only for word in ("--only", name))]
    here = Path(__file__).resolve().parents[3]
    with tempfile.TemporaryDirectory(prefix="fmsg-compare-") as scratch:
        older = Path(scratch) / "tree"
        try:
            _git(here, "worktree", "add", "--detach", str(older), options.commit)
            runs: Mapping[Path, list[Run]] = {older: [], here: []}
            for number in range(options.rounds):
                # Turn and turn about, so that neither is always the one that runs on a warm machine.
                for tree in (older, here) if number % 2 == 0 else (here, older):
                    print(f"round {number + 1}: {options.commit if tree == older else 'this tree'}", file=sys.stderr)
                    runs[tree].append(_run(tree, arguments, Path(scratch) / "run.json"))
        except subprocess.CalledProcessError as error:
            said = (error.stderr or b"").decode().strip()
            print(f"bench-compare: {' '.join(error.cmd)} ended with {error.returncode}. {said}", file=sys.stderr)
            return 2
        finally:
            remove = ["git", "worktree", "remove", "--force", str(older)]
            subprocess.run(remove, cwd=here, capture_output=True, check=False)
    found = compared(runs[older], runs[here])
    print(f"Change in the median; {options.commit} from – to; this tree from – to. Over the yardstick's where it can.")
    print(table(found))
    return 1 if any(one.worse for one in found) else 0


def _git(here: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=here, check=True, capture_output=True)


def _run(tree: Path, arguments: Sequence[str], out: Path) -> Run:
    """One run of the bench with the tree's own code in this environment."""
    command = [sys.executable, "-P", "-m", "fmsg_mcpd", "bench", *arguments, "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    subprocess.run(command, cwd=tree, env=environment, check=True, timeout=CHILD_S, stderr=subprocess.DEVNULL)
    return read(out.read_bytes())


if __name__ == "__main__":
    sys.exit(main())
