"""JSON Schemas of arguments and results, kept short: a client pays for every byte of ``tools/list``."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

ANYTHING: Schema = {"type": "array"}
"""An array whose items the result's own words explain."""
TEXT: Schema = {"type": "string"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
WHOLE: Schema = {"type": "integer"}
WHOLE_OR_NULL: Schema = {"type": ["integer", "null"]}
FLAG: Schema = {"type": "boolean"}
FLAG_OR_NULL: Schema = {"type": ["boolean", "null"]}

REFERENCE_PATTERN = "^[0-9]{1,19}$"
"""Narrow enough for a client to learn the form from; `fmsg.reference` has the last word."""


def closed(required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """Arguments: an object with these properties and no others. A trailing ``_`` of a name is dropped (``from_``)."""
    schema: Schema = {
        "type": "object",
        "properties": {name.rstrip("_"): value for name, value in properties.items()},
        "additionalProperties": False,
    }
    if required:
        schema["required"] = list(required)
    return schema


def record(optional: dict[str, Schema] | None = None, /, **required: Schema) -> Schema:
    """An object in a result: the named properties are always there, the optional ones sometimes, others never."""
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


def told(schema: Schema) -> Schema:
    """A result's schema as clients get it: which properties the objects inside always have is true, and tested, but
    costs more bytes than it tells."""
    return {name: _told(value) for name, value in schema.items()}


def _told(value: Any) -> Any:
    if isinstance(value, list):
        return [_told(item) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {name: _told(item) for name, item in value.items()}
    if value.get("type") == "object" and isinstance(value.get("required"), list):
        del inner["required"]
        inner.pop("additionalProperties", None)
    return inner


def array(items: Schema, **bounds: Any) -> Schema:
    """An array of these items."""
    return {"type": "array", "items": items, **bounds}


def text(description: str, **bounds: Any) -> Schema:
    """A string argument."""
    return {"type": "string", "description": description, **bounds}


def reference(description: str) -> Schema:
    """A message reference as an argument."""
    return {"type": "string", "pattern": REFERENCE_PATTERN, "description": description}


def whole(description: str, *, default: int, least: int, most: int) -> Schema:
    """An integer argument within bounds."""
    return {"type": "integer", "minimum": least, "maximum": most, "default": default, "description": description}


def flag(description: str, *, default: bool = False) -> Schema:
    """A boolean argument."""
    return {"type": "boolean", "default": default, "description": description}


TEXTS: Schema = array(TEXT)
ADDRESS: Schema = text("@user@domain or short name")
ATTACHMENTS: Schema = array(record(filename=TEXT, size=WHOLE))
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
