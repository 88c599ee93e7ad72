"""JSON from hosts, old and new, sound and not."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmsg import decode
from fmsg.decode import JsonReader, read_message, read_page
from fmsg.errors import HostMisbehaved
from fmsg.message import Message, Sent


def page(data: bytes) -> tuple[list[int], int]:
    """The ids of a page and how many were left out."""
    found = read_page(data, host_time_s=None)
    return [message.id for message in found.messages], found.skipped


def test_a_page_keeps_the_host_s_order_and_time() -> None:
    found = read_page(b'[{"id":9},{"id":5}]', host_time_s=12.0)
    assert [message.id for message in found.messages] == [9, 5]
    assert (found.host_time_s, found.skipped) == (12.0, 0)


@pytest.mark.parametrize("data", [b"null", b"[]", b" [ ] "])
def test_no_messages_may_be_null(data: bytes) -> None:
    assert page(data) == ([], 0)


@pytest.mark.parametrize(
    "item",
    [
        '{"id":"7"}',
        '{"id":-7}',
        '{"id":9223372036854775808}',
        "{}",
        '{"id":0}',
        "[]",
        "null",
        "7",
        '{"id":7,"to":["@a",1]}',
    ],
)
def test_an_item_that_cannot_be_understood_costs_the_page_nothing_else(item: str) -> None:
    assert page(f'[{{"id":9}},{item},{{"id":5}}]'.encode()) == ([9, 5], 1)


def test_what_was_left_out_is_logged_without_its_content(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert page(b'[{"id":1,"topic":"secret topic","size":"secret size"}]') == ([], 1)
    assert "left out a list item" in caplog.text
    assert "secret" not in caplog.text


def test_a_kind_of_fault_is_a_warning_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_known_faults", set())
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            page(b'[{"id":"x"}]')
        for n in range(200):
            decode.note_fault("skipped", f"fault {n}")
    assert [record.levelno for record in caplog.records[:3]] == [logging.WARNING, logging.DEBUG, logging.DEBUG]
    assert sum(record.levelno == logging.WARNING for record in caplog.records) == 100


@pytest.mark.parametrize("data", [b"", b"<html>", b"{}", b"7", b'[{"id":9}', b'[{"id":9},]', b"\xff"])
def test_what_is_no_list_is_the_host_s_fault(data: bytes) -> None:
    with pytest.raises(HostMisbehaved, match=r"list cannot be understood .* Is this the Web API's URL\?"):
        page(data)


value = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.text(max_size=5), max_size=2)
item = value | st.dictionaries(st.sampled_from(["id", "pid", "from", "to", "time", "size", "add_to", "x"]), value)


@given(st.lists(item, max_size=6))
def test_any_json_list_is_read_and_every_item_accounted_for(items: list[object]) -> None:
    ids, skipped = page(json.dumps(items).encode())
    assert len(ids) + skipped == len(items)


@given(st.binary(max_size=200))
def test_nothing_but_misbehaviour_comes_of_any_bytes(data: bytes) -> None:
    for read in (page, read_message):
        try:
            read(data)
        except HostMisbehaved as error:
            assert len(str(error)) < 400  # noqa: PT017 - most bytes raise, some do not


def test_a_message_s_missing_id_is_filled_in() -> None:
    assert read_message(b'{"from":"@a@b.test"}', message_id=7).id == 7


def test_a_parent_0_is_no_parent() -> None:
    assert read_message(b'{"id":1,"pid":0}').pid is None
    assert read_page(b'[{"id":1,"pid":0}]', host_time_s=None).messages[0].pid is None


def test_unknown_fields_are_ignored() -> None:
    assert read_message(b'{"id":1,"novelty":{"deep":[1,2]}}') == Message(id=1)


def test_the_error_names_the_answer_and_the_field() -> None:
    with pytest.raises(HostMisbehaved, match=r"the host's receipt cannot be understood \(.*time.*\)"):
        JsonReader(Sent, "receipt")(b'{"id":1,"time":"now"}')
