"""JSON Schemas of results, kept short: a client pays for every byte of ``tools/list``.

No schema has an ``enum``, which clients remember and which a later version could not extend. What may be null is
written as ``anyOf``: clients that translate schemas for a model may refuse all tools for a list of types.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

ANYTHING: Schema = {"type": "array"}
"""An array whose items the result's own words explain."""
TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}


def or_null(schema: Schema) -> Schema:
    """What may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


TEXT_OR_NULL: Schema = or_null(TEXT)
WHOLE_OR_NULL: Schema = or_null(WHOLE)
FLAG_OR_NULL: Schema = or_null(FLAG)


def record(optional: dict[str, Schema] | None = None, /, **required: Schema) -> Schema:
    """An object in a result: the named properties are always there, the optional ones sometimes, others never.

    A trailing ``_`` of a name is dropped (``from_``).
    """
    properties = {name.rstrip("_"): value for name, value in required.items()}
    return {
        "type": "object",
        "properties": properties | (optional or {}),
        "required": list(properties),
        "additionalProperties": False,
    }


def result(optional: dict[str, Schema] | None = None, /, **required: Schema) -> Schema:
    """A tool's structured content: the fields of a success, or ``error`` alone."""
    properties = {name.rstrip("_"): value for name, value in required.items()}
    return {
        "type": "object",
        "properties": properties | (optional or {}),
        "anyOf": [{"required": list(properties)}, {"required": ["error"]}],
    }


def shortened(schema: Schema) -> Schema:
    """A result's schema as clients get it. What costs more bytes than it tells is left out, though results keep to it:
    which properties the objects inside always have, and what the arrays inside of those hold."""
    return {name: _shortened(value, inside=False) for name, value in schema.items()}


def _shortened(value: Any, *, inside: bool) -> Any:
    if isinstance(value, list):
        return [_shortened(item, inside=inside) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "array":
        if inside or "items" not in value:
            return ANYTHING
        return {"type": "array", "items": _shortened(value["items"], inside=True)}
    inner = {name: _shortened(item, inside=inside) for name, item in value.items()}
    if value.get("type") == "object" and isinstance(value.get("required"), list):
        del inner["required"]
        inner.pop("additionalProperties", None)
    return inner


def array(items: Schema) -> Schema:
    """An array of these items."""
    return {"type": "array", "items": items}


TEXTS: Schema = array(TEXT)
ATTACHMENTS: Schema = array(record({"type": TEXT}, filename=TEXT, size=WHOLE))
NOTICE: dict[str, Schema] = {"notice": TEXT}
"""The framing statement, first in structured content that holds anything foreign."""

_ITEM_OPTIONAL: dict[str, Schema] = {
    "added": ANYTHING,
    "reaction": TEXT,
    "sha256": TEXT,
}
_ITEM: dict[str, Schema] = {
    "id": TEXT,
    "pid": TEXT_OR_NULL,
    "from": TEXT,
    "to": TEXTS,
    "topic": TEXT,
    "time": TEXT_OR_NULL,
    "read": FLAG_OR_NULL,
    "important": FLAG,
    "no_reply": FLAG,
    "terminal": FLAG,
    "type": TEXT,
    "size": WHOLE,
    "preview": TEXT,
    "attachments": ATTACHMENTS,
    "reactions": ANYTHING,
}

_ITEM_OPTIONAL_IN_THREAD: dict[str, Schema] = {
    "added": ANYTHING,
    "important": FLAG,
    "no_reply": FLAG,
    "terminal": FLAG,
    "sha256": TEXT,
}


def message_item(optional: dict[str, Schema] | None = None, /, **more: Schema) -> Schema:
    """A message item of FMSG-007, with what a tool adds to it."""
    return record(_ITEM_OPTIONAL | (optional or {}), **(_ITEM | more))


THREAD_ITEM: Schema = record(
    _ITEM_OPTIONAL_IN_THREAD,
    id=TEXT,
    pid=TEXT_OR_NULL,
    visible=FLAG,
    from_=TEXT_OR_NULL,
    to=TEXTS,
    time=TEXT_OR_NULL,
    topic=TEXT,
    type=TEXT,
    size=WHOLE,
    body=TEXT_OR_NULL,
    body_truncated=FLAG,
    attachments=ATTACHMENTS,
)
"""One message of a lineage."""
