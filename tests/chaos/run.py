"""`python -m tests.chaos.run`: real processes, callers that wait in a loop, and faults at random."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvloop

from tests.chaos.cluster import Sizes
from tests.chaos.consumers import Habits
from tests.chaos.faults import FAULTS
from tests.chaos.report import lines
from tests.chaos.scenario import Outcome, Plan, known_faults, run, to_stderr


def main(argv: Sequence[str] | None = None) -> int:
    """Run and report; returns 0 if nothing was lost or came twice."""
    options = _parser().parse_args(argv)
    plan = plan_from(options)
    if options.keep_logs:
        Path(options.keep_logs).mkdir(parents=True, exist_ok=True)
        outcome = _run(plan, Path(options.keep_logs))
    else:
        with tempfile.TemporaryDirectory(prefix="fmsg-chaos-") as scratch:
            outcome = _run(plan, Path(scratch))
    print("\n".join(lines(outcome, timeline=options.timeline)))
    return 0 if outcome.good else 1


def _run(plan: Plan, log_dir: Path) -> Outcome:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(plan, log_dir, tell=to_stderr))


def plan_from(options: argparse.Namespace) -> Plan:
    """What the command line asks for. Raises `ValueError`."""
    without = set(known_faults(options.without))
    kinds = known_faults(options.only) if options.only else tuple(FAULTS)
    env = {"FMSG_RECONCILE_SECONDS": str(options.reconcile), "FMSG_LEDGER_MAX_ENTRIES": str(options.ledger)}
    return Plan(
        callers=options.callers,
        messages=options.messages,
        seconds=options.seconds,
        seed=options.seed,
        faults=tuple(kind for kind in kinds if kind not in without),
        fault_every_s=options.every,
        drain_s=options.drain,
        sizes=Sizes(fronts=options.fronts, daemons=options.daemons, workers=options.workers),
        habits=Habits(goes_away=options.away),
        switches=options.switches,
        env=env,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.run", description=__doc__)
    parser.add_argument("--callers", type=int, default=200)
    parser.add_argument("--messages", type=int, default=20_000, help="arrivals, all callers together")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fronts", type=int, default=2)
    parser.add_argument("--daemons", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--every", type=float, default=3.0, help="seconds between faults, on average")
    parser.add_argument("--only", nargs="*", default=[], metavar="FAULT", help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--without", nargs="*", default=[], metavar="FAULT")
    parser.add_argument("--drain", type=float, default=150.0, help="seconds after which everything has to be there")
    parser.add_argument("--reconcile", type=float, default=30.0, help="FMSG_RECONCILE_SECONDS")
    parser.add_argument("--ledger", type=int, default=1000, help="FMSG_LEDGER_MAX_ENTRIES")
    parser.add_argument("--away", type=float, default=0.01, help="how likely a consumer pauses after a call")
    parser.add_argument(
        "--switches", default="current", help="preset of the sandbox host: current, rough, plain, older"
    )
    parser.add_argument("--timeline", action="store_true", help="list the faults with their times")
    parser.add_argument("--keep-logs", metavar="DIR", help="keep the processes' logs here")
    return parser


if __name__ == "__main__":
    sys.exit(main())
