"""JSON from hosts, old and new, sound and not."""

from __future__ import annotations

import asyncio
import json
import logging
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmsg import decode
from fmsg.decode import JsonReader, read_message, read_page
from fmsg.errors import HostMisbehaved
from fmsg.message import Message, Sent
from fmsg.pieces import at_once


def page(data: bytes) -> tuple[list[int], int]:
    """The ids of a page and how many were left out."""
    found = at_once(decode._page(data, None))
    return [message.id for message in found.messages], found.skipped


async def test_a_page_keeps_the_host_s_order_and_time() -> None:
    found = await read_page(b'[{"id":9},{"id":5}]', host_time_s=12.0)
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
    assert "left out an item" in caplog.text
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
    assert at_once(decode._page(b'[{"id":1,"pid":0}]', None)).messages[0].pid is None


def test_unknown_fields_are_ignored() -> None:
    assert read_message(b'{"id":1,"novelty":{"deep":[1,2]}}') == Message(id=1)


def test_the_error_names_the_answer_and_the_field() -> None:
    with pytest.raises(HostMisbehaved, match=r"the host's receipt cannot be understood \(.*time.*\)"):
        JsonReader(Sent, "receipt")(b'{"id":1,"time":"now"}')


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize("deep", [DEEP, b'{"a":' * 100_000 + b"0" + b"}" * 100_000, b'{"a":["]\\"",' + DEEP + b"]}"])
def test_an_unknown_field_that_is_nested_too_deeply_hides_nothing(deep: bytes) -> None:
    """It once hid the whole list."""
    assert page(b'[{"id":9},{"id":7,"x":' + deep + b',"topic":"a\\"["},{"id":5}]') == ([9, 7, 5], 0)
    thread = b'{"root_id":1,"trigger_id":2,"x":' + deep + b',"messages":[{"id":1,"x":' + deep + b'},{"id":2}]}'
    assert [message.id for message in at_once(decode._thread(thread)).messages or ()] == [1, 2]


def test_a_known_field_that_is_nested_too_deeply_hides_its_item() -> None:
    assert page(b'[{"id":9},{"id":7,"to":' + DEEP + b'},{"id":5}]') == ([9, 5], 1)
    with pytest.raises(HostMisbehaved, match="nested too deeply"):
        read_message(b'{"id":7,"x":' + DEEP + b"}")


@pytest.mark.parametrize("unit", [b'{"id":1},', b"{},", b"1,", b"[],"])
def test_more_entries_than_a_page_has_are_refused_before_they_take_memory(unit: bytes) -> None:
    tracemalloc.start()
    flood = b"[" + unit * (8_000_000 // len(unit)) + b"0]"
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    with pytest.raises(HostMisbehaved, match="at most length 101"):
        page(flood)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - before < 1_000_000


@pytest.mark.parametrize(
    "field",
    [
        '"size":1e400',
        f'"size":1{"0" * 400}',
        f'"attachments":[{{"filename":"a","size":1{"0" * 400}}}]',
        '"time":1e308',
        '"time":253402300799.9',
        f'"topic":"{"x" * 5000}"',
        f'"from":"@{"x" * 5000}"',
        f'"reaction":"{"👍" * 300}"',
        f'"x":"{"y" * 1_100_000}"',
    ],
    ids=lambda field: field[:24],
)
def test_values_beyond_all_measure_hide_their_item_only(field: str) -> None:
    assert page(f'[{{"id":9}},{{"id":7,{field}}},{{"id":5}}]'.encode()) == ([9, 5], 1)


@pytest.mark.parametrize("sha256", ["see the attached file", "a" * 63, "g" * 64, "a" * 64 + "\n", ""])
def test_a_hash_that_is_none_is_absent(sha256: str) -> None:
    fields = {"id": 7, "sha256": sha256, "add_to": [{"to": ["@a@b.test"], "sha256": sha256}]}
    message = read_message(json.dumps(fields).encode())
    assert message.sha256 is None
    assert [batch.sha256 for batch in message.add_to or ()] == [None]
    thread = {"root_id": 7, "trigger_id": 7, "messages": [{"id": 7, "message_sha256": sha256}]}
    (shown,) = at_once(decode._thread(json.dumps(thread).encode())).messages or ()
    assert shown.message_sha256 is None


def test_a_hash_that_is_one_stays() -> None:
    digest = "0123456789abcdefABCDEF" + "0" * 42
    assert read_message(json.dumps({"id": 7, "sha256": digest}).encode()).sha256 == digest


async def test_a_long_page_is_read_in_steps_and_a_short_one_at_once() -> None:
    long = b'[{"id":1,"x":"' + b"y" * 500_000 + b'"},{"id":2,"x":"' + b"y" * 500_000 + b'"}]'
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(others())
    assert len((await read_page(b'[{"id":1}]', host_time_s=None)).messages) == 1
    assert turns == 0
    assert len((await read_page(long, host_time_s=None)).messages) == 2
    assert turns >= 2
    counting.cancel()
