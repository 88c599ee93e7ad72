"""What a message knows of its people, and the hashes it is known by everywhere."""

from __future__ import annotations

import random

import pytest

from sandbox.records import (
    Attachment,
    Batch,
    Recipient,
    Record,
    batch_hash,
    compressed_bytes,
    domain_of,
    lowered,
    message_hash,
)


def record() -> Record:
    batch = Batch(batch_id=1, adder="@b@x", to=[Recipient(addr="@d@y")], time_s=2.0)
    return Record(
        id=1, from_="@A@x", to=[Recipient(addr="@b@x")], type="text/plain", data="aé".encode(), time_s=1.0,
        add_to=[batch],
    )  # fmt: skip


def test_who_takes_part() -> None:
    message = record()
    assert list(message.participants()) == ["@a@x", "@b@x", "@d@y"]
    assert [message.is_participant(who) for who in ("@a@x", "@b@x", "@d@y", "@e@y")] == [True, True, True, False]
    assert [message.is_primary(who) for who in ("@a@x", "@b@x", "@d@y")] == [True, True, False]
    assert [message.is_recipient(who) for who in ("@a@x", "@b@x", "@d@y")] == [False, True, True]


def test_an_adder_takes_part() -> None:
    message = record()
    message.to = []
    assert message.is_participant("@b@x")
    assert "@b@x" in message.participants()


def test_the_hash_is_over_what_the_sender_wrote() -> None:
    message, other = record(), record()
    other.id, other.reads, other.add_to = 99, {"@b@x": 1.0}, []
    assert message_hash(message) == message_hash(other)
    for change in (
        {"data": b"x"},
        {"topic": "x"},
        {"time_s": 3.0},
        {"attachments": [Attachment(filename="a", data=b"")]},
    ):
        changed = record()
        for name, value in change.items():
            setattr(changed, name, value)
        assert message_hash(changed) != message_hash(message)


def test_batches_have_hashes_of_their_own() -> None:
    message = record()
    other = Batch(batch_id=1, adder="@b@x", to=[Recipient(addr="@e@y")], time_s=2.0)
    assert batch_hash("m", message.add_to[0]) != batch_hash("m", other) != batch_hash("n", other)


def test_text_is_cut_at_a_code_point() -> None:
    message = record()
    assert (message.text(), message.text(2)) == ("aé", "a")
    message = Record(id=1, from_="@a@x", to=[], type="text/plain", data=b"a\xff")
    assert (message.text(), message.text(1)) == (None, None)


def test_domains_compare_in_lower_case_and_no_wider() -> None:
    assert domain_of("@a@STRASSE.test") == domain_of("@b@strasse.test") != domain_of("@b@straße.test")


@pytest.mark.parametrize(
    ("written", "kept"), [("@BOB@A", "@bob@a"), ("@ΣΟΣ@a", "@σοσ@a"), ("@İ@a", "@İ@a"), ("@ẞ@a", "@ß@a")]
)
def test_addresses_are_lowered_character_by_character(written: str, kept: str) -> None:
    assert lowered(written) == kept


@pytest.mark.parametrize(
    ("media_type", "data", "compressed"),
    [
        ("text/plain", b"word " * 103, True),
        ("text/plain", b"word " * 102, False),
        ("text/plain", random.Random(1).randbytes(4096), False),
        ("text/plain", random.Random(1).randbytes(9000) + bytes(100_000), False),
        ("Image/PNG; x=y", bytes(4096), False),
        ("application/json", bytes(100_000), True),
    ],
    ids=["from 512 bytes", "less", "saves nothing", "the first 8 KiB decide", "a compressed type", "large"],
)
def test_which_bodies_travel_compressed(media_type: str, data: bytes, compressed: bool) -> None:
    size = compressed_bytes(media_type, data)
    assert (size is not None) is compressed
    assert size is None or size < len(data) * 0.8
