"""`mcp_front.tools.quick`: it never says yes where the validator says no, and says yes to what agents send."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_front.tools.quick import quick
from mcp_front.tools.registry import TOOLS

USUAL: dict[str, dict[str, Any]] = {
    "whoami": {},
    "wait_for_message": {"after_id": "12", "timeout_seconds": 50, "settle_seconds": 0, "include_thread": True},
    "list_messages": {"limit": 20, "offset": 0},
    "get_message": {"id": "7"},
    "reply": {"id": "7", "body": "yes"},
    "send_message": {"to": ["@bob@b.test"], "body": "hello"},
}

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=5), SCALARS, max_size=2)
LIKELY = st.sampled_from(
    ["0", "7", "007", "", "abc", "@bob@b.test", 0, 1, -1, 20, 20.0, 101, True, ["@bob@b.test"], []]
)


@pytest.mark.parametrize("name", USUAL)
def test_what_agents_send_is_seen_to_fit(name: str) -> None:
    assert quick(TOOLS[name].definition.input_schema)(USUAL[name])


@given(data=st.data(), name=st.sampled_from(sorted(TOOLS)))
def test_it_never_says_yes_where_the_validator_says_no(data: st.DataObject, name: str) -> None:
    schema = TOOLS[name].definition.input_schema
    known = st.sampled_from([*schema["properties"], "other"])
    arguments = data.draw(st.dictionaries(known, LIKELY | VALUES, max_size=4))
    if quick(schema)(arguments):
        jsonschema.Draft202012Validator(schema).validate(arguments)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "format": "date"},
        {"type": ["string", "null"]},
        {"type": "object", "properties": {}},
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        {"type": "number"},
        {"anyOf": [{"type": "string"}]},
        {},
    ],
)
def test_what_it_does_not_know_it_leaves_to_the_validator(schema: dict[str, Any]) -> None:
    fits = quick(schema)
    values: list[Any] = ["a", 1, None, {}, [], ["a"]]
    assert not any(map(fits, values))


def test_true_is_no_whole_number() -> None:
    assert not quick({"type": "integer", "minimum": 0})(True)
