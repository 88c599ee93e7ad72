"""What delivery objects mean."""

from __future__ import annotations

import pytest

from fmsg.delivery import CODES, Outcome, Status, outcomes, status_of
from fmsg.message import AddToBatch, Delivery, Message

WHEN = "2026-09-04T01:15:03Z"


@pytest.mark.parametrize(
    ("code", "time", "status"),
    [
        (None, None, "pending"),
        (None, WHEN, "delivered"),
        (200, WHEN, "delivered"),
        (200, None, "pending"),
        (0, None, "pending"),
        (-1, None, "pending"),
        (-2, None, "pending"),
        (-1, WHEN, "delivered"),
        (100, WHEN, "delivered"),
        *((code, None, "failed") for code in CODES if code > 0),
        (12345, None, "failed"),
    ],
)
def test_a_time_wins_then_the_code_decides(code: int | None, time: str | None, status: Status) -> None:
    assert status_of(Delivery(addr="@a@x.test", time_delivered=time, response_code=code)) == status


def test_every_failure_code_has_a_name_and_advice() -> None:
    assert {-2, -1, *range(1, 11), 100, 101, 102, 103, 105} == set(CODES)
    assert all(code.name and code.advice for code in CODES.values())


def test_every_recipient_is_reported_added_ones_included() -> None:
    message = Message(
        to=("@A@x.test", "@b@x.test"),
        to_delivery=(Delivery(addr="@a@X.test", time_delivered=WHEN, response_code=200),),
        add_to=(AddToBatch(to=("@c@y.test",), to_delivery=(Delivery(addr="@c@y.test", response_code=100),)),),
    )
    assert outcomes(message) == (
        Outcome(addr="@a@x.test", status="delivered", time=WHEN, code=200, via="to"),
        Outcome(addr="@b@x.test", status="pending", time=None, code=None, via="to"),
        Outcome(addr="@c@y.test", status="failed", time=None, code=100, via="add_to"),
    )


def test_a_host_that_names_recipients_only_in_the_deliveries_is_understood() -> None:
    batch = AddToBatch(to=None, to_delivery=(Delivery(addr="@c@y.test", response_code=-1),))
    assert [
        (one.addr, one.status, one.via) for one in outcomes(Message(to=None, to_delivery=None, add_to=(batch,)))
    ] == [("@c@y.test", "pending", "add_to")]


def test_nulls_everywhere_give_no_outcomes() -> None:
    assert outcomes(Message(to=None, to_delivery=None, add_to=None)) == ()
