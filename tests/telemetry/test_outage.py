"""One line when an outage begins, one when it is over, and a gauge."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Gauge

from telemetry.outage import AGAIN_AFTER_S, Outage


class Case:
    """An outage of the store, its gauge and its clock."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.registry = CollectorRegistry()
        self.outage = Outage("store", Gauge("up", "…", registry=self.registry), clock=lambda: self.now_s)

    @property
    def up(self) -> float | None:
        return self.registry.get_sample_value("up")


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Action and text of each line so far."""
    return [(str(record.__dict__["action"]), record.getMessage()) for record in caplog.records]


def test_it_is_told_once_when_it_begins_and_once_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    case = Case()
    assert (case.up, bool(case.outage), case.outage.end()) == (1.0, False, False)
    assert case.outage.begin("it does not answer", since_s=995.0)
    for _ in range(100):
        case.now_s += 2.0
        assert not case.outage.begin("it still does not answer")
    assert (case.up, case.outage.lost_at_s, case.outage.reason) == (0.0, 995.0, "it still does not answer")
    assert case.outage.end()
    assert (case.up, case.outage.lost_at_s, case.outage.reason) == (1.0, None, None)
    assert lines(caplog) == [
        ("store_lost", "the store is lost: it does not answer"),
        ("store_back", "the store is back after 205 s"),
    ]


def test_what_comes_and_goes_every_few_seconds_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    case = Case()
    for _ in range(30):
        assert case.outage.begin("it does not answer")
        case.now_s += 2.0
        assert case.outage.end()
    assert len(caplog.records) == 2
    case.now_s += AGAIN_AFTER_S
    case.outage.begin("it does not answer")
    assert len(caplog.records) == 3
