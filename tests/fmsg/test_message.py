"""The values of the protocol: what older hosts leave out, who takes part, when a message is there."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmsg.message import AddToBatch, Draft, Message, Thread, available_at_s, participants

address = st.sampled_from(
    ["@a@x.test", "@A@x.test", "@b@x.test", "@B@X.TEST", "@straße@x.test", "@STRASSE@x.test", "@c@y.test"]
)
batch = st.builds(
    AddToBatch,
    add_to_from=st.none() | address,
    to=st.none() | st.lists(address, max_size=3).map(tuple),
)


@given(from_=address, to=st.none() | st.lists(address, max_size=4), add_to=st.none() | st.lists(batch, max_size=3))
def test_participants_are_everybody_once_in_lower_case_sender_first(
    from_: str, to: list[str] | None, add_to: list[AddToBatch] | None
) -> None:
    found = participants(from_=from_, to=to, add_to=add_to)
    everybody = [from_, *(to or ())]
    for one in add_to or ():
        everybody += [*([one.add_to_from] if one.add_to_from else []), *(one.to or ())]
    assert found[0] == from_.lower()
    assert set(found) == {name.lower() for name in everybody}
    assert len(set(found)) == len(found)


def test_addresses_that_only_folding_joins_are_two() -> None:
    """`@strasse` and `@straße` are two mailboxes: who answers both reaches both, and each has its own time."""
    one, other = "@straße@x.test", "@strasse@x.test"
    assert participants(from_="@a@x.test", to=(one, other), add_to=None) == ("@a@x.test", one, other)
    message = Message(time=5.0, to=(other,), add_to=(AddToBatch(to=(one,), time=9.0),))
    assert (available_at_s(message, one), available_at_s(message, other)) == (9.0, 5.0)


def test_lists_given_as_null_and_fields_left_out_are_tolerated() -> None:
    data = (
        b'{"id":1,"from":"@a@x.test","to":null,"add_to":null,"attachments":null,"reactions":null,'
        b'"to_delivery":null,"not_known_yet":{}}'
    )
    message = msgspec.json.decode(data, type=Message)
    assert participants(from_=message.from_, to=message.to, add_to=message.add_to) == ("@a@x.test",)
    assert (message.terminal, message.reaction, message.is_draft) == (False, None, True)


def test_64_bit_ids_are_exact() -> None:
    message = msgspec.json.decode(b'{"id":9223372036854775807,"pid":9007199254740993}', type=Message)
    assert (message.id, message.pid) == (2**63 - 1, 2**53 + 1)


@pytest.mark.parametrize("value", ["9223372036854775808", "-1", '"1"', "1.5"])
def test_what_is_no_id_is_not_decoded(value: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(f'{{"id":{value}}}', type=Message)


@pytest.mark.parametrize(
    ("short_text", "size", "whole"),
    [("hello", 5, "hello"), ("hello", 6, None), ("grüße", 7, "grüße"), ("grüß", 7, None), ("", 0, ""), (None, 0, None)],
)
def test_short_text_is_the_body_when_it_is_as_long(short_text: str | None, size: int, whole: str | None) -> None:
    assert Message(short_text=short_text, size=size).whole_text() == whole


def test_the_size_of_a_compressed_message_says_nothing_of_its_short_text() -> None:
    assert Message(short_text="a" * 768, size=60, deflate=True).whole_text() is None


def test_an_empty_reaction_is_a_reaction_too() -> None:
    assert Message(reaction="").is_reaction
    assert not Message().is_reaction


ME = "@me@x.test"


@pytest.mark.parametrize(
    ("message", "when"),
    [
        (Message(time=5.0, to=("@ME@x.test",)), 5.0),
        (Message(time=5.0, to=("@b@x.test",), add_to=(AddToBatch(to=(ME,), time=9.0),)), 9.0),
        (Message(time=5.0, to=(ME,), add_to=(AddToBatch(to=(ME,), time=9.0),)), 5.0),
        (Message(time=5.0, add_to=(AddToBatch(to=(ME,), time=9.0), AddToBatch(to=(ME,), time=7.0))), 7.0),
        (Message(time=5.0, add_to=(AddToBatch(to=(ME,), time=None), AddToBatch(to=None, time=6.0))), 5.0),
        (Message(time=5.0, to=None, add_to=None), 5.0),
        (Message(time=None, to=(ME,)), None),
    ],
)
def test_a_message_is_there_from_its_sending_or_from_being_added(message: Message, when: float | None) -> None:
    assert available_at_s(message, ME) == when


def test_a_draft_goes_out_with_what_it_has_and_no_more() -> None:
    draft = Draft(from_=ME, to=("@b@x.test",), type="text/plain", size=2, data="hi", topic="t", important=True)
    assert draft.wire() == {
        "version": 1,
        "from": ME,
        "to": ("@b@x.test",),
        "type": "text/plain",
        "size": 2,
        "data": "hi",
        "topic": "t",
        "important": True,
    }


def test_an_empty_draft_still_says_its_size() -> None:
    draft = Draft(from_=ME, to=(ME,), type="text/plain", size=0, pid="ab" * 32)
    wire = draft.wire()
    assert wire == {"version": 1, "from": ME, "to": (ME,), "type": "text/plain", "size": 0, "pid": "ab" * 32}


def test_a_thread_leaves_out_what_is_false_or_empty() -> None:
    data = (
        b'{"root_id":1,"trigger_id":3,"complete":false,'
        b'"messages":[{"id":1,"visible":false},{"id":3,"visible":true,"pid":1}]}'
    )
    thread = msgspec.json.decode(data, type=Thread)
    assert thread.messages is not None
    assert [(message.id, message.visible, message.pid, message.body) for message in thread.messages] == [
        (1, False, None, None),
        (3, True, 1, None),
    ]
