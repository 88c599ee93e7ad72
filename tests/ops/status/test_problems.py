from __future__ import annotations

import msgspec
import pytest

from ops.status.picture import OWNERLESS, UNREPORTED, Picture, QueueState
from ops.status.problems import Problem, is_well, problems_of
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
        (
            picture(daemons=(), processes=(FRONT, WORKER)),
            "bad",
            "no daemon runs, so fronts poll for 100 callers",
        ),
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
            "daemon box-9 runs and sends no heartbeat",
        ),
        (picture(processes=(*DAEMONS, WORKER)), "bad", "no front"),
        (picture(processes=(*DAEMONS, process("front", draining=1.0), WORKER)), "bad", "no front"),
        (
            picture(processes=(*DAEMONS, WORKER), callers=callers(active=0, looked_at=0, live=0)),
            "warning",
            "no front",
        ),
        (picture(processes=(*DAEMONS, FRONT)), "warning", "no worker"),
        (picture(queue=QueueState(error="away")), "warning", "the job queue cannot be read: away"),
        (picture(queue=QueueState(jobs=3, late_s=600.0)), "warning", "the oldest of 3 jobs is 10 min late"),
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


def test_a_full_redis_is_what_is_wrong_and_not_that_no_process_announces_itself() -> None:
    """None can."""
    full = server(used_memory_bytes=104 * 2**20)
    problem = only(picture(daemons=(), processes=(), server=full, callers=callers(live=0, states={OWNERLESS: 100})))
    assert (problem.level, "104 %" in problem.what, "which processes run" in problem.what) == (
        "bad",
        True,
        True,
    )
    assert "maxmemory" in problem.do


def test_the_all_in_one_is_front_daemon_and_worker_and_needs_no_second_daemon() -> None:
    up = process("up")
    assert problems_of(picture(daemons=(daemon(process=up),), processes=(up,))) == ()


@pytest.mark.parametrize("facts", [{}, {"draining": 1.0}, {"loop_lag_s": 5.0}])
def test_a_process_that_fell_silent_is_a_problem_and_what_it_said_counts_no_more(facts: dict[str, float]) -> None:
    problem = only(picture(processes=(*DAEMONS, FRONT, WORKER, process("front", "box-7", silent_s=34.0, **facts))))
    assert (problem.level, problem.what) == ("warning", "front box-7 has said nothing for 34 s")
    assert "--forget-silent" in problem.do


def test_the_only_front_that_hangs_is_no_front() -> None:
    found = problems_of(picture(processes=(*DAEMONS, WORKER, process("front", silent_s=34.0))))
    assert [problem.what for problem in found] == ["no front runs", "front box-1 has said nothing for 34 s"]


def test_a_process_whose_supervisor_found_it_dead_is_silent_at_once() -> None:
    problem = only(picture(processes=(*DAEMONS, FRONT, WORKER, process("front", "box-7", silent_s=1.0, ended=1.0))))
    assert problem.what == "front box-7 ended without saying so, 1 s ago"


def test_a_process_that_was_replaced_is_worth_a_note() -> None:
    """Each start of a process replaces one that went before it, on the same machine and for the same role."""
    dead = process("front", "box-7", silent_s=300.0)
    successor = process("front", "box-8", age_s=290.0)
    shown = picture(processes=(*DAEMONS, FRONT, WORKER, dead, successor))
    problem = only(shown)
    assert problem.level == "note"
    assert problem.what.startswith("1 process ended without saying so within the last hour and was replaced: front box")
    assert is_well(shown)
    assert dead not in shown.shown("front")
    for other in (
        process("front", "rack-8", age_s=290.0),
        process("worker", "box-8", age_s=290.0),
        process("front", "box-8", age_s=400.0),
    ):
        shown = picture(processes=(*DAEMONS, FRONT, WORKER, dead, other))
        assert "front box-7 has said nothing for 5 min" in [problem.what for problem in problems_of(shown)]
        assert not is_well(shown)


def test_one_start_replaces_one_process() -> None:
    dead = [process("worker", f"box-{number}", silent_s=300.0) for number in (7, 8)]
    successors = [process("worker", "box-9", age_s=290.0)]
    found = [one.level for one in problems_of(picture(processes=(*DAEMONS, FRONT, *dead, *successors)))]
    assert found == ["warning", "note"]


def test_a_redis_that_has_just_started_has_not_heard_of_all_yet() -> None:
    gone = tuple(process(role, silent_s=200.0) for role in ("front", "worker"))
    assert problems_of(picture(daemons=(), processes=gone, server=server(uptime_s=3.0))) == ()


@pytest.mark.parametrize(("lost", "whom"), [(2, ""), (1, " 1 of 2 daemons")])
def test_an_outage_of_the_host_comes_first(lost: int, whom: str) -> None:
    gone = {"host_lost_at_s": NOW_S - 360.0, "host_error": "503 Service Unavailable"}
    shown = picture(
        daemons=(daemon("box-1", **gone), daemon("box-2", **(gone if lost == 2 else {}))),
        callers=callers(live=0, states={"backing_off": 100}, errors=(("503", 100),)),
    )
    first, *others = problems_of(shown)
    assert first.level == "bad"
    assert first.what == f"the fmsg host has not answered{whom} for 6 min: 503 Service Unavailable"
    assert ["no live feed" in other.what for other in others] == [True] * (2 - lost)


def test_a_store_that_refuses_writes_comes_first_and_nobody_is_missed() -> None:
    problem = only(picture(processes=(), daemons=(), refuses="READONLY You can't write against a read only replica."))
    assert problem.level == "bad"
    assert "refuses writes" in problem.what
    assert "READONLY" in problem.what
