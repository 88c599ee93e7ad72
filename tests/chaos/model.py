"""Play random cases against the oracle: ``python -m tests.chaos.model --seconds 600 --seed 1``.

A case that breaks a promise is shrunk and printed as JSON; kept under ``tests/chaos/cases`` it is played by the suite.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import msgspec

from tests.chaos.model_case import Case, make_case
from tests.chaos.model_oracle import play

CASES = Path(__file__).parent / "cases"
"""Cases that once broke a promise."""


def failure_of(case: Case) -> str | None:
    """What goes wrong with a case, in one line; None for nothing."""
    try:
        play(case)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def shrink(case: Case) -> Case:
    """The same failure (by its first words) with as little as possible."""
    kind = _kind(failure_of(case))
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(case):
            if _kind(failure_of(smaller)) == kind:
                case = smaller
                changed = True
                break
    return case


def _kind(failure: str | None) -> str | None:
    return None if failure is None else " ".join(word for word in failure.split() if word.isalpha())[:40]


def _smaller(case: Case) -> list[Case]:
    found = []
    replace = msgspec.structs.replace
    size = len(case.ops)
    while size := size // 2:
        starts = range(0, len(case.ops), size)
        found += [replace(case, ops=case.ops[:start] + case.ops[start + size :]) for start in starts]
    if len(case.consumers) > 1:
        found += [
            replace(case, consumers=case.consumers[:at] + case.consumers[at + 1 :]) for at in range(len(case.consumers))
        ]
    if case.latency_s:
        found.append(replace(case, latency_s=0.0))
    if case.max_entries != 1000:
        found.append(replace(case, max_entries=1000))
    if case.snapshot != 64 and case.max_entries > 64:
        found.append(replace(case, snapshot=64))
    for at, consumer in enumerate(case.consumers):
        if consumer.accidents:
            calm = replace(consumer, accidents=0.0)
            found.append(replace(case, consumers=(*case.consumers[:at], calm, *case.consumers[at + 1 :])))
    return found


def main(arguments: list[str] | None = None) -> int:
    """Play until the time is over or a case fails; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(arguments)
    seed = int(time.time()) if options.seed is None else options.seed
    print(f"first seed {seed}", flush=True)
    until = time.monotonic() + options.seconds
    count = 0
    while time.monotonic() < until:
        case = make_case(seed + count)
        failure = failure_of(case)
        if failure is not None:
            print(f"seed {seed + count}: {failure}\nshrinking…", flush=True)
            small = shrink(case)
            print(f"{failure_of(small)}\n{msgspec.json.encode(small).decode()}")
            return 1
        count += 1
    print(f"{count} cases, nothing lost, nothing twice and unmarked; next seed {seed + count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
