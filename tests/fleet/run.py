"""`python -m tests.fleet.run`: three of everything behind a proxy, thousands of callers, and an operator's bad day."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvloop

from tests.chaos.scenario import to_stderr
from tests.fleet.play import Outcome, Plan, Result, run
from tests.fleet.proxy import INSTALL, find_proxy
from tests.fleet.scenarios import SCENARIOS

SHOWN = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Run and report; returns 0 if nothing was lost, came twice or failed that must not."""
    options = _parser().parse_args(argv)
    if find_proxy() is None:
        print(INSTALL, file=sys.stderr)
        return 2
    plan = Plan(
        callers=options.callers,
        messages_per_s=options.rate,
        seed=options.seed,
        scenarios=tuple(one for one in SCENARIOS if not options.only or any(word in one.name for word in options.only)),
        connects_per_s=options.connects,
        isolation_calls=options.isolation,
    )
    if options.keep_logs:
        outcome = _run(plan, Path(options.keep_logs))
    else:
        with tempfile.TemporaryDirectory(prefix="fmsg-fleet-") as scratch:
            outcome = _run(plan, Path(scratch))
    print("\n".join(lines(outcome)))
    return 0 if outcome.good else 1


def _run(plan: Plan, log_dir: Path) -> Outcome:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(plan, log_dir, tell=to_stderr))


def lines(outcome: Outcome) -> Iterator[str]:
    """The report, line by line."""
    plan = outcome.plan
    yield f"{plan.callers} callers, {plan.messages_per_s:g} messages a second, seed {plan.seed}"
    for result in outcome.results:
        yield from _told(result, plan)
    for shape, verdict in outcome.verdicts.items():
        yield (
            f"{shape}: {verdict.expected} to be returned, {verdict.received} returned, {len(verdict.lost)} lost, "
            f"{len(verdict.unmarked)} unmarked duplicates, {len(verdict.again)} again to who acknowledges, "
            f"{len(verdict.mixed)} mixed, {len(verdict.foreign)} foreign, {verdict.marked} marked"
        )
    if outcome.isolation is not None:
        found = outcome.isolation
        yield (
            f"two callers with each other's ids: {found.calls} calls, {found.refused} refused, "
            f"{found.own.total()} showed something of the caller's own, {len(found.leaks)} of the other's"
        )
        yield from found.leaks[:SHOWN]
    yield f"processes that ended by themselves: {len(outcome.deaths)}"
    yield from outcome.deaths[:SHOWN]
    yield "GOOD" if outcome.good else f"NOT GOOD (seed {plan.seed})"


def _told(result: Result, plan: Plan) -> Iterator[str]:
    gaps = result.gaps
    problems = result.problems(plan)
    yield f"{result.scenario.name} ({result.end_s - result.start_s:.0f} s): {', '.join(problems) or 'good'}"
    yield (
        f"  calls {result.calls}, dropped {result.dropped}, failed {sum(result.failed.values())}; "
        f"messages {result.messages}, lost {len(result.lost)}, unmarked duplicates {len(result.duplicates)}, "
        f"worst delay {result.worst_delay_s:.1f} s"
    )
    yield (
        f"  callers without a socket {len(gaps.without)}, for {gaps.longest_without_s:.1f} s at most; "
        f"with two {len(gaps.doubled)}, for {gaps.longest_doubled_s:.1f} s at most; "
        f"connects in a second {result.peak_connects_per_s} at most"
    )
    if result.scenario.redis_away:
        yield f"  came again unmarked after Redis had forgotten them: {result.repeated_unmarked}"
    for text, count in result.failed.most_common(SHOWN):
        yield f"    {count} x {text}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet.run", description=__doc__)
    parser.add_argument("--callers", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=20.0, help="messages a second")
    parser.add_argument("--connects", type=float, default=50.0, help="FMSG_MAX_CONNECTS_PER_SECOND")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--isolation", type=int, default=10_000, help="calls with the ids of another caller")
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="scenarios whose name holds a word")
    parser.add_argument("--keep-logs", metavar="DIR", help="keep the processes' logs here")
    return parser


if __name__ == "__main__":
    sys.exit(main())
