"""Schemas on the wire: what is left out of them is only what costs more than it tells."""

from __future__ import annotations

from mcp_front import schemas


def test_what_clients_get_leaves_out_what_objects_inside_always_have_and_nothing_else() -> None:
    strict = schemas.result(schemas.NOTICE, items=schemas.array(schemas.record(id=schemas.TEXT, to=schemas.TEXTS)))
    assert schemas.shortened(strict) == {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "items": {"type": "object", "properties": {"id": {"type": "string"}, "to": {"type": "array"}}},
            },
            "notice": {"type": "string"},
        },
        "anyOf": [{"required": ["items"]}, {"required": ["error"]}],
    }
    assert strict["properties"]["items"]["items"]["required"] == ["id", "to"]


def test_a_trailing_underscore_is_dropped() -> None:
    assert schemas.record(from_=schemas.TEXT)["required"] == ["from"]
