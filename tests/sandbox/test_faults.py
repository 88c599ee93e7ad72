"""Armed faults are used up one by one; connects are counted by the second."""

from __future__ import annotations

from sandbox.faults import ANY, Failure, Faults
from tests.sandbox.conftest import Clock


def test_a_fault_of_a_route_goes_before_one_of_any() -> None:
    faults = Faults()
    faults.failures[ANY].append(Failure(status=500))
    faults.failures["get"].append(Failure(status=404))
    found = [faults.failure("get"), faults.failure("get"), faults.failure("get")]
    assert [failure and failure.status for failure in found] == [404, 500, None]


def test_delays_of_a_route_go_before_those_of_any() -> None:
    faults = Faults()
    faults.delays_s[ANY] = 2
    faults.delays_s["get"] = 1
    assert (faults.delay_s("get"), faults.delay_s("list")) == (1, 2)
    del faults.delays_s["get"]
    assert faults.delay_s("get") == 2


def test_hangs_and_lost_answers_are_used_up() -> None:
    faults = Faults()
    faults.hangs_left["get"] = 2
    faults.lost_answers_left[ANY] = 1
    assert [faults.hangs("get") for _ in range(3)] == [True, True, False]
    assert [faults.loses_answer("list") for _ in range(2)] == [True, False]


def test_nothing_is_armed_in_the_end() -> None:
    faults = Faults()
    armed = [faults.armed]
    faults.hangs_left["get"] = 1
    armed.append(faults.armed)
    faults.hangs("get")
    faults.hangs("get")
    armed.append(faults.armed)
    assert armed == [False, True, False]


def test_releasing_wakes_who_hangs_now_and_nobody_later() -> None:
    faults = Faults()
    hanging = faults.released
    faults.release()
    assert hanging.is_set()
    assert not faults.released.is_set()


def test_the_peak_of_connects_per_second(clock: Clock) -> None:
    faults = Faults()
    assert faults.peak_connects_per_s() == 0
    for count in (2, 5, 1):
        for _ in range(count):
            faults.count_connect(clock)
        clock.now_s += 1
    assert (faults.connects, faults.peak_connects_per_s()) == (8, 5)
    faults.reset_counters()
    assert (faults.connects, faults.peak_connects_per_s()) == (0, 0)
