"""One type gives schema and decoding. What is clear is read as it is meant; every fault is told, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from fmsg.errors import BadInput
from mcp_front.tools.arguments import MOST_FAULTS, Arguments, Filled, Reference, read_arguments, schema_of


class File(Arguments, frozen=True, kw_only=True):
    """A nested object."""

    elsewhere: ClassVar[Mapping[str, str]] = {"path": "works elsewhere."}

    filename: Annotated[Filled, Meta(description="Bare name")]
    data: str = ""


class Example(Arguments, frozen=True, kw_only=True):
    """Every kind of argument there is."""

    limit: Annotated[int, Meta(ge=1, le=100, description="How many")] = 20
    id: Annotated[Reference, Meta(description="Message")]
    to: Annotated[tuple[Annotated[Filled, Meta(description="Address")], ...], Meta(min_length=1, max_length=3)] = ()
    flag: Annotated[bool, Meta(description="Flag")] = False
    after: Annotated[Reference, Meta(description="Position")] | None = None
    from_: Annotated[Filled, Meta(description="Sender")] | None = msgspec.field(name="from", default=None)
    emoji: Annotated[str | None, Meta(description="Emoji")]
    topic: Annotated[str, Meta(description="Subject")] = ""
    name: Annotated[Filled, Meta(max_length=5, description="Name")] | None = None
    action: Literal["list", "delete"] = "list"
    files: tuple[File, ...] = ()


LEAST: dict[str, Any] = {"id": "1", "emoji": "x"}


def read(**arguments: Any) -> Example:
    return read_arguments("a_tool", Example, LEAST | {name.rstrip("_"): value for name, value in arguments.items()})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (None, "id: is missing; a_tool needs it. It is: Message\nemoji: is missing; a_tool needs it. It is: Emoji"),
        ([], "a_tool: arguments must be an object."),
        (LEAST | {"id": 5}, "id: must be a string. Message ids are strings of decimal digits."),
        (LEAST | {"id": None}, "id: must be a string."),
        (LEAST | {"id": "x"}, "id: is not a message reference."),
        (LEAST | {"id": ""}, "id: is not a message reference."),
        (LEAST | {"id": "1" * 20}, "id: is not a message reference."),
        (LEAST | {"limit": 0}, "limit: must be at least 1."),
        (LEAST | {"limit": "101"}, "limit: must be at most 100."),
        (LEAST | {"limit": 10**400}, "limit: must be at most 100."),
        (LEAST | {"limit": "five"}, "limit: must be a whole number."),
        (LEAST | {"limit": 1.5}, "limit: must be a whole number."),
        (LEAST | {"limit": float("nan")}, "limit: must be a whole number."),
        (LEAST | {"limit": True}, "limit: must be a whole number."),
        (LEAST | {"flag": "yes"}, "flag: must be true or false."),
        (LEAST | {"flag": 1}, "flag: must be true or false."),
        (LEAST | {"emoji": 5}, "emoji: must be a string or null."),
        (LEAST | {"to": []}, "to: needs at least 1 item."),
        (LEAST | {"to": ["a", 5]}, "to[1]: must be a string."),
        (LEAST | {"to": "a"}, "to: must be an array, in [ ]."),
        (LEAST | {"to": "[broken"}, "to: must be an array, in [ ]."),
        (LEAST | {"to": ["a", "b", "c", "d"]}, "to: takes at most 3 items"),
        (LEAST | {"name": "abcdef"}, "name: must be at most 5 characters."),
        (LEAST | {"action": "drop"}, "action: must be one of delete, list."),
        (LEAST | {"files": [{}]}, "files[0].filename: is missing; a_tool needs it. It is: Bare name"),
        (LEAST | {"files": [5]}, "files[0]: must be an object, in { }."),
        (LEAST | {"files": [{"filename": ""}]}, "files[0].filename: must not be empty."),
        (LEAST | {"files": [{"filename": "a", "b": 1}]}, "files[0].b: a_tool has no such argument. It takes f"),
        (LEAST | {"files": [{"filename": "a", "path": "/b"}]}, "files[0].path: works elsewhere."),
        (LEAST | {"form": "x"}, "form: a_tool has no such argument. It takes limit, id,"),
        (LEAST | {"a\u202e\nb": "x"}, '"a<U+202E><U+000A>b": a_tool has no such argument.'),
        (LEAST | {"topic": "a\ud800"}, "topic: holds half a surrogate pair"),
        (LEAST | {"files": [{"filename": "\udfff"}]}, "files[0].filename: holds half a surrogate pair"),
    ],
)  # fmt: skip
def test_the_fault_is_told_with_the_name_of_the_argument(arguments: object, told: str) -> None:
    with pytest.raises(BadInput) as fault:
        read_arguments("a_tool", Example, arguments)
    assert str(fault.value).startswith(told)
    assert len(str(fault.value).splitlines()) == len(told.splitlines())


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(BadInput) as fault:
        read(id=5, limit="many", to=["a", 1], from_=2, surprise=True)
    names = [line.partition(":")[0] for line in str(fault.value).splitlines()]
    assert names == ["limit", "id", "to[1]", "from", "surprise"]


@pytest.mark.parametrize("name", ["limit", "to", "flag", "after", "from", "topic", "name", "action", "files"])
def test_null_for_an_optional_argument_means_absent(name: str) -> None:
    assert read(**{name: None}) == read()


@pytest.mark.parametrize("name", ["limit", "to", "flag", "after", "from", "name", "action", "files"])
def test_an_empty_text_means_absent_where_no_empty_value_makes_sense(name: str) -> None:
    assert read(**{name: ""}) == read()


def test_an_empty_text_is_itself_where_it_is_a_value() -> None:
    assert read(emoji="", topic="").emoji == ""
    assert read(emoji=None).emoji is None


@pytest.mark.parametrize(
    ("given_", "meant"),
    [
        ({"limit": "5"}, {"limit": 5}),
        ({"limit": " 7 "}, {"limit": 7}),
        ({"limit": 20.0}, {"limit": 20}),
        ({"flag": "true"}, {"flag": True}),
        ({"flag": "False"}, {"flag": False}),
        ({"to": '["@a@b", "c"]'}, {"to": ["@a@b", "c"]}),
        ({"files": '[{"filename": "a"}]'}, {"files": [{"filename": "a"}]}),
        ({"files": ['{"filename": "a"}']}, {"files": [{"filename": "a"}]}),
    ],
)
def test_what_can_mean_one_thing_only_is_read_as_that(given_: dict[str, Any], meant: dict[str, Any]) -> None:
    assert read(**given_) == read(**meant)


def test_the_schema_says_what_the_type_says() -> None:
    schema = schema_of(Example)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert list(schema["properties"])[:2] == schema["required"] == ["id", "emoji"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["limit"] == {
        "type": "integer", "minimum": 1, "maximum": 100, "description": "How many", "default": 20,
    }  # fmt: skip
    assert schema["properties"]["from"] == {"type": "string", "description": "Sender"}
    assert schema["properties"]["emoji"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert schema["properties"]["action"] == {"type": "string", "enum": ["delete", "list"], "default": "list"}
    assert schema["properties"]["files"]["items"]["required"] == ["filename"]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
SCHEMA = jsonschema.Draft202012Validator(schema_of(Example))


@given(
    st.dictionaries(
        st.sampled_from([*schema_of(Example)["properties"], "x"]),
        JSON | st.sampled_from(["1", 5, ["a"], True, '["a"]', [{"filename": "f"}]]),
        max_size=6,
    )
)
def test_whatever_is_given_is_taken_or_refused_in_words(arguments: dict[str, Any]) -> None:
    try:
        taken = read_arguments("a_tool", Example, arguments)
    except BadInput as error:
        text = str(error)
        assert 1 <= len(text.splitlines()) <= MOST_FAULTS
    else:
        text = msgspec.json.encode(taken).decode()
        given_back = msgspec.to_builtins(taken).items()
        SCHEMA.validate({name: value for name, value in given_back if value or name == "emoji"})
    text.encode()


@given(st.fixed_dictionaries({"id": st.just("1"), "emoji": st.none() | st.text(max_size=2)}, optional={
    "limit": st.integers(-5, 200) | st.just(7.0), "to": st.lists(st.text(min_size=1, max_size=2), max_size=4),
    "flag": st.booleans(),    "after": st.text("0123456789a", max_size=21), "name": st.text(min_size=1, max_size=7),
}))  # fmt: skip
def test_what_fits_the_schema_is_taken(arguments: dict[str, Any]) -> None:
    if SCHEMA.is_valid(arguments):
        read_arguments("a_tool", Example, arguments)


def test_many_faults_cost_no_more_than_few() -> None:
    with pytest.raises(BadInput) as fault:
        read(to=None, files=[5] * 100_000)
    assert len(str(fault.value).splitlines()) == MOST_FAULTS
