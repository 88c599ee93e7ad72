"""Arguments that do not fit: one sentence that names the argument; and nothing that breaks the check itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmsg.errors import BadInput
from mcp_front import schemas
from mcp_front.schemas import Schema
from mcp_front.tools.arguments import Validated, check

SCHEMA: Schema = schemas.closed(
    ("id",),
    id=schemas.reference("Message"),
    limit=schemas.whole("How many", default=20, least=1, most=100),
    to=schemas.array(schemas.ADDRESS, minItems=1, maxItems=3, uniqueItems=True),
    flag=schemas.flag("Flag"),
    emoji={"type": ["string", "null"]},
    name=schemas.text("Name", minLength=1, maxLength=5),
    action={"type": "string", "enum": ["list", "delete"]},
    files=schemas.array(schemas.closed(("filename",), filename=schemas.text("Bare name"))),
)
VALIDATOR = Validated(SCHEMA)


def checked(arguments: object) -> dict[str, Any]:
    return check("a_tool", VALIDATOR, SCHEMA, arguments)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (None, "id: is missing; a_tool needs it. It is: Message"),
        ({}, "id: is missing; a_tool needs it. It is: Message"),
        ([], "a_tool: arguments must be an object."),
        ({"id": 5}, "id: must be a string. Message ids are strings of decimal digits."),
        ({"id": None}, "id: must be a string."),
        ({"id": "x"}, "id: is not a message reference."),
        ({"id": "1" * 20}, "id: is not a message reference."),
        ({"id": "1", "limit": 0}, "limit: must be at least 1."),
        ({"id": "1", "limit": 101}, "limit: must be at most 100."),
        ({"id": "1", "limit": "5"}, "limit: must be a whole number."),
        ({"id": "1", "limit": 1.5}, "limit: must be a whole number."),
        ({"id": "1", "limit": True}, "limit: must be a whole number."),
        ({"id": "1", "flag": "true"}, "flag: must be true or false."),
        ({"id": "1", "flag": 1}, "flag: must be true or false."),
        ({"id": "1", "emoji": 5}, "emoji: must be a string or null."),
        ({"id": "1", "to": []}, "to: needs at least 1 item."),
        ({"id": "1", "to": ["a", 5]}, "to[1]: must be a string."),
        ({"id": "1", "to": "a"}, "to: must be an array, in [ ]."),
        ({"id": "1", "to": ["a", "b", "c", "d"]}, "to: takes at most 3 items"),
        ({"id": "1", "to": ["a", "a"]}, "to: names something twice."),
        ({"id": "1", "name": ""}, "name: must not be empty."),
        ({"id": "1", "name": "abcdef"}, "name: must be at most 5 characters."),
        ({"id": "1", "action": "drop"}, "action: must be one of list, delete."),
        ({"id": "1", "files": [{}]}, "files[0].filename: is missing; a_tool needs it. It is: Bare name"),
        ({"id": "1", "files": [{"filename": "a", "b": 1}]}, "files[0].b: a_tool has no such argument. It takes f"),
        ({"id": "1", "from": "x"}, "from: a_tool has no such argument. It takes id, limit,"),
        ({"id": "1", "a\u202e\nb": "x"}, '"a<U+202E><U+000A>b": a_tool has no such argument.'),
        ({"id": "1", "name": "a\ud800"}, "name: holds half a surrogate pair"),
        ({"id": "1", "files": [{"filename": "\udfff"}]}, "files[0].filename: holds half a surrogate pair"),
    ],
)  # fmt: skip
def test_the_fault_is_told_with_the_name_of_the_argument(arguments: object, told: str) -> None:
    with pytest.raises(BadInput) as fault:
        checked(arguments)
    assert str(fault.value).startswith(told)


def test_what_fits_comes_back_with_whole_numbers_as_such() -> None:
    given_ = {"id": "1", "limit": 20.0, "to": ["a"], "emoji": None}
    taken = checked(given_)
    assert taken == given_
    assert isinstance(taken["limit"], int)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(
    st.dictionaries(
        st.sampled_from([*SCHEMA["properties"], "x"]), JSON | st.sampled_from(["1", 5, ["a"], True]), max_size=6
    )
)
def test_whatever_is_given_is_taken_or_refused_in_one_sentence(arguments: dict[str, Any]) -> None:
    try:
        taken = checked(arguments)
    except BadInput as error:
        text = str(error)
    else:
        text = json.dumps(taken)
    assert len(text.splitlines()) <= 1
    text.encode()


def test_many_faults_cost_no_more_than_few() -> None:
    with pytest.raises(BadInput, match=r"^to"):
        checked({"id": "1", "to": [5] * 100_000})
