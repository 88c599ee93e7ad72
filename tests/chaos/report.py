"""The account of a run, for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.chaos.scenario import Outcome

SHOWN = 10
"""Of each list; the seed brings the rest back."""


def lines(outcome: Outcome, *, timeline: bool = False) -> Iterator[str]:
    """The report, line by line."""
    plan, verdict = outcome.plan, outcome.verdict
    yield (
        f"{plan.callers} callers, {outcome.arrivals} arrivals in {plan.seconds:g} s, {len(outcome.faults)} faults, "
        f"seed {plan.seed}"
    )
    yield "sent: " + _counted(outcome.sent)
    yield "calls: " + _counted(outcome.calls)
    for text, count in outcome.failures.most_common(SHOWN):
        yield f"  {count} x {text}"
    yield f"to be returned {verdict.expected}, returned {verdict.received}"
    yield f"all that came was there {outcome.drained_s:.1f} s after the last message and the last fault"
    yield from _listed("lost", verdict.lost)
    if verdict.forgotten:
        yield (f"never came, of a shared subscription, since Redis forgot an answer that was lost: {verdict.forgotten}")
    yield from _listed("duplicates without a mark", verdict.unmarked)
    yield from _listed("again to one who acknowledges", verdict.again)
    yield from _listed("batches of several threads", verdict.mixed)
    yield from _listed("not the reader's to get", verdict.foreign)
    yield f"duplicates marked: {verdict.marked}"
    yield f"duplicates after a flush, where the marks were lost with Redis: {verdict.after_flush}"
    yield f"sent with an idempotency key: {outcome.sendings}"
    yield from _listed("sent more than once", outcome.sent_twice)
    yield from _listed("not sent, or never said so", outcome.sent_never)
    yield f"sent more than once because a flush forgot the key: {outcome.sent_twice_after_flush}"
    yield from _listed("processes that ended by themselves", outcome.deaths)
    if outcome.failed_starts:
        yield f"starts put off because Redis was away: {outcome.failed_starts}"
    yield from _delays(outcome)
    began_s = min((one.start_s for one in outcome.faults), default=0.0)
    for delay_s, reader, message_id, at_s in outcome.verdict.slowest:
        yield f"  slowest: {delay_s:6.2f} s, {reader} {message_id}, available at {at_s - began_s:.1f} s"
    if timeline:
        for fault in sorted(outcome.faults, key=lambda one: one.start_s):
            yield f"  {fault.start_s - began_s:7.1f} – {fault.end_s - began_s:6.1f} s {fault.kind}"
    yield "GOOD" if outcome.good else f"NOT GOOD (seed {plan.seed})"


def _delays(outcome: Outcome) -> Iterator[str]:
    quiet = sorted(outcome.verdict.delays_s)
    if quiet:
        middle, high = quiet[len(quiet) // 2], quiet[int(len(quiet) * 0.99)]
        yield f"delay without a fault: p50 {middle:.2f} s, p99 {high:.2f} s, worst {quiet[-1]:.2f} s ({len(quiet)})"
    strikes = {kind: sum(one.kind == kind for one in outcome.faults) for kind in {one.kind for one in outcome.faults}}
    for kind, count in sorted(strikes.items()):
        worst_s = outcome.verdict.worst_s.get(kind, 0.0)
        yield f"  {kind:<16} {count:3} times, {outcome.verdict.touched[kind]:6} messages, worst delay {worst_s:6.2f} s"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _listed(title: str, found: Iterable[object]) -> Iterator[str]:
    items = list(found)
    yield f"{title}: {len(items)}"
    for item in items[:SHOWN]:
        yield f"  {item}"
