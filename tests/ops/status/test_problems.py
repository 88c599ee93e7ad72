from __future__ import annotations

import msgspec
import pytest

from ops.status.picture import OWNERLESS, UNREPORTED, Picture, Queue
from ops.status.problems import Problem, problems_of
from tests.ops.pictures import NOW_S, callers, daemon, picture, process, server


def test_a_deployment_that_is_well_has_no_problems() -> None:
    assert problems_of(picture()) == ()
    assert problems_of(picture(server=None)) == ()


def only(shown: Picture) -> Problem:
    found = problems_of(shown)
    assert len(found) == 1, found
    assert found[0].do
    return found[0]


FRONT, WORKER = process("front"), process("worker")
DAEMONS = (process("daemon", "box-1"), process("daemon", "box-2"))


@pytest.mark.parametrize(
    ("shown", "level", "what"),
    [
        (picture(daemons=(), processes=(FRONT, WORKER)), "bad", "no daemon runs, and 100 callers wait by polling"),
        (
            picture(daemons=(), processes=(FRONT, WORKER), callers=callers(active=0, looked_at=0, live=0)),
            "warning",
            "no daemon runs",
        ),
        (picture(daemons=(daemon("box-1"),), processes=(DAEMONS[0], FRONT, WORKER)), "note", "only one daemon"),
        (
            picture(daemons=(daemon("box-1"), daemon("box-2"), daemon("box-3", draining=True))),
            "note",
            "daemon box-3 is draining, 50 feeds are left",
        ),
        (
            picture(processes=(*DAEMONS, process("daemon", "box-9"), FRONT, WORKER)),
            "warning",
            "daemon box-9 ran a moment ago, and its heart does not beat",
        ),
        (picture(processes=(*DAEMONS, WORKER)), "bad", "no front"),
        (picture(processes=(*DAEMONS, process("front", draining=1.0), WORKER)), "bad", "no front"),
        (
            picture(processes=(*DAEMONS, WORKER), callers=callers(active=0, looked_at=0, live=0)),
            "warning",
            "no front",
        ),
        (picture(processes=(*DAEMONS, FRONT)), "warning", "no worker"),
        (picture(queue=Queue(error="away")), "warning", "the job queue cannot be read: away"),
        (picture(queue=Queue(jobs=3, late_s=600.0)), "warning", "the oldest of 3 jobs is 10 min late"),
        (picture(deferred=5000), "warning", "5000 deferred tasks"),
        (picture(processes=(*DAEMONS, process("front", loop_lag_s=0.4), WORKER)), "warning", "runs 400 ms behind"),
        (
            picture(processes=(process("daemon", "box-1", ingest_lag_s=30.0), DAEMONS[1], FRONT, WORKER)),
            "warning",
            "30 s late",
        ),
        (
            picture(processes=(process("daemon", "box-1", lost_events=1.0), DAEMONS[1], FRONT, WORKER)),
            "warning",
            "1 message came only by comparing lists",
        ),
        (picture(round_trip_s=0.3), "note", "300 ms"),
        (picture(server=server(eviction="allkeys-lru")), "warning", "Redis maxmemory-policy allkeys-lru"),
        (picture(server=server(persists=False)), "warning", "Redis persistence: off"),
        (picture(server=server(used_memory_bytes=90 * 2**20)), "warning", "90 % of its maxmemory"),
        (picture(server=server(used_memory_bytes=100 * 2**20)), "bad", "100 % of its maxmemory"),
        (
            picture(processes=(*DAEMONS, msgspec.structs.replace(FRONT, version="2.0.0"), WORKER)),
            "note",
            "several versions run: 1.0.0, 2.0.0",
        ),
    ],
)
def test_each_problem_is_seen(shown: Picture, level: str, what: str) -> None:
    problem = only(shown)
    assert problem.level == level
    assert what in problem.what


@pytest.mark.parametrize(
    ("changes", "level", "do"),
    [
        ({"live": 80, "states": {"backing_off": 20}, "errors": (("503: no", 20),)}, "bad", "(20): 503: no"),
        ({"live": 97, "states": {"backing_off": 3}, "errors": (("503: no.", 3),)}, "note", "503: no. Look"),
        ({"live": 20, "states": {"asking": 60, "stopped": 20}}, "bad", "next request brings one"),
        ({"live": 50, "states": {UNREPORTED: 50}}, "bad", "FMSG_SEAL_KEY"),
        ({"live": 50, "states": {OWNERLESS: 50}}, "bad", "daemons' logs"),
        ({"live": 50, "states": {"connecting": 50}}, "bad", "fmsg-mcpd caller @address"),
    ],
)
def test_callers_without_a_live_feed(changes: dict[str, object], level: str, do: str) -> None:
    problem = only(picture(callers=callers(**changes)))
    assert problem.level == level
    assert "have no live feed" in problem.what
    assert do in problem.do


def test_a_few_callers_that_come_and_go_are_no_problem() -> None:
    assert problems_of(picture(callers=callers(active=1000, looked_at=1000, live=995, states={"asking": 5}))) == ()


def test_a_daemon_that_just_started_is_given_time() -> None:
    young = (daemon("box-1"), daemon("box-2", since_s=NOW_S - 5.0))
    problem = only(picture(daemons=young, callers=callers(live=10, states={"connecting": 90})))
    assert (problem.level, problem.do) == ("note", "A daemon has just started: look again in a minute.")


def test_the_worst_comes_first() -> None:
    found = problems_of(picture(daemons=(), processes=(), server=server(persists=False), round_trip_s=1.0))
    assert [problem.level for problem in found] == ["bad", "bad", "warning", "warning", "note"]


def test_a_full_redis_is_what_is_wrong_and_not_that_nobody_says_he_is_there() -> None:
    """Nobody can: daemons were started that ran already, while the server stayed full."""
    full = server(used_memory_bytes=104 * 2**20)
    problem = only(picture(daemons=(), processes=(), server=full, callers=callers(live=0, states={OWNERLESS: 100})))
    assert (problem.level, "104 %" in problem.what, "who runs cannot be seen" in problem.what) == ("bad", True, True)
    assert "maxmemory" in problem.do


def test_the_all_in_one_is_front_daemon_and_worker() -> None:
    assert problems_of(picture(daemons=(daemon(), daemon("box-2")), processes=(process("up"),))) == ()
