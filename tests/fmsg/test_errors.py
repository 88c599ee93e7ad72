"""Statuses become classes; texts begin with the status."""

from __future__ import annotations

import pytest

from fmsg import errors
from fmsg.errors import (
    BadInput,
    Conflict,
    FmsgError,
    Forbidden,
    HostFailed,
    HostRefused,
    HostUnreachable,
    NotFound,
    Throttled,
    Unauthorized,
    refusal,
)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, HostRefused),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (413, HostRefused),
        (422, HostRefused),
        (429, Throttled),
        (500, HostFailed),
        (503, HostFailed),
        (599, HostFailed),
    ],
)
def test_each_status_has_its_class(status: int, kind: type[HostRefused]) -> None:
    error = refusal(status, "why", code="c", retry_after_s=1.5)
    assert type(error) is kind
    assert (error.status, error.reason, error.code, error.retry_after_s) == (status, "why", "c", 1.5)
    assert str(error) == f"{status}: why"


def test_every_error_is_in_the_tree_and_in_the_docstring() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert all(issubclass(kind, FmsgError) for kind in classes)
    assert errors.__doc__ is not None
    assert [kind.__name__ for kind in classes if kind.__name__ not in errors.__doc__] == []


def test_bad_input_is_a_value_error() -> None:
    assert issubclass(BadInput, ValueError)


def test_an_unanswered_request_counts_as_sent_unless_said_otherwise() -> None:
    assert HostUnreachable("gone").sent
    assert not HostUnreachable("gone", sent=False).sent
