"""Arguments against a tool's closed schema. The first fault is told in one sentence that names the argument."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fmsg.errors import BadInput
from mcp_front.framing import quoted
from mcp_front.schemas import REFERENCE_PATTERN, Schema
from mcp_front.tools.quick import Fits

if TYPE_CHECKING:
    import jsonschema
    from jsonschema.protocols import Validator

_KINDS = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array, in [ ]",
    "object": "an object",
    "null": "null",
}

FAULTS_READ = 20
"""The outermost of the first few is told; an array of a hundred thousand wrong items must not cost seconds."""

SHOWN_NAME_CHARS = 60
"""Of a name that a caller made up; the rest tells it nothing."""


class Validated:
    """A schema and, once something did not fit quickly, its validator: jsonschema takes 2 MB and 30 ms to import."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._validator: Validator | None = None

    def faults(self, arguments: Any) -> Iterator[jsonschema.ValidationError]:
        """What is wrong with some arguments, if anything is."""
        if self._validator is None:
            import jsonschema

            jsonschema.Draft202012Validator.check_schema(self._schema)
            self._validator = jsonschema.Draft202012Validator(self._schema)
        return self._validator.iter_errors(arguments)


def check(
    tool: str, against: Validated, schema: Schema, arguments: object, *, fits: Fits | None = None
) -> dict[str, Any]:
    """The arguments, whole numbers as `int`. Raises `BadInput` naming the argument, the reason and what fits.

    ``fits`` is asked first; the validator only where that says no.
    """
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        raise BadInput(f"{tool}: arguments must be an object.")
    if fits is None or not fits(arguments):
        faults = itertools.islice(against.faults(arguments), FAULTS_READ)
        fault = min(faults, key=lambda error: len(error.absolute_path), default=None)
        if fault is not None:
            raise BadInput(_told(tool, schema, fault))
    broken = None if all(map(_plain, arguments.values())) else _unencodable(arguments, "")
    if broken is not None:
        raise BadInput(f"{broken}: holds half a surrogate pair, which is no text. Send the whole character.")
    return {name: _normal(value) for name, value in arguments.items()}


def _told(tool: str, schema: Schema, fault: jsonschema.ValidationError) -> str:
    where = _path(fault.absolute_path)
    limit: Any = fault.validator_value
    given: Any = fault.instance
    match str(fault.validator):
        case "additionalProperties":
            known = fault.schema["properties"] if isinstance(fault.schema, Mapping) else {}
            unknown = next(name for name in given if name not in known)
            path = f"{where}.{_name(unknown)}" if where else _name(unknown)
            takes = ", ".join(known) if known else "no arguments"
            return f"{path}: {tool} has no such argument. It takes {takes}."
        case "required":
            missing = next(name for name in limit if name not in given)
            path = f"{where}.{missing}" if where else missing
            return f"{path}: is missing; {tool} needs it.{_meaning(schema, fault, missing)}"
        case "type":
            hint = " Message ids are strings of decimal digits." if _is_reference(fault.schema) else ""
            return f"{where}: must be {_kinds(limit)}.{hint}"
        case "anyOf":
            return f"{where}: must be {_kinds([branch['type'] for branch in limit])}."
        case "pattern" if _is_reference(fault.schema):
            return f"{where}: is not a message reference. Pass the id as the string of digits that a result gave."
        case "minimum":
            return f"{where}: must be at least {limit}."
        case "maximum":
            return f"{where}: must be at most {limit}."
        case "minItems":
            return f"{where}: needs at least {limit} item{'s' if limit != 1 else ''}."
        case "maxItems":
            return f"{where}: takes at most {limit} items; make several calls."
        case "minLength":
            return f"{where}: must not be empty."
        case "maxLength":
            return f"{where}: must be at most {limit} characters."
        case "enum":
            return f"{where}: must be one of {', '.join(map(str, limit))}."
        case "uniqueItems":
            return f"{where}: names something twice."
        case other:
            return f"{where or tool}: does not fit the tool's schema ({other})."


def _kinds(limit: str | Sequence[str]) -> str:
    return " or ".join(_KINDS[kind] for kind in ([limit] if isinstance(limit, str) else limit))


def _is_reference(schema: object) -> bool:
    return isinstance(schema, Mapping) and schema.get("pattern") == REFERENCE_PATTERN


def _meaning(schema: Schema, fault: jsonschema.ValidationError, name: str) -> str:
    properties = (fault.schema if isinstance(fault.schema, Mapping) else schema)["properties"]
    description = properties.get(name, {}).get("description")
    return f" It is: {description}" if description else ""


def _name(unknown: object) -> str:
    shown = str(unknown)[:SHOWN_NAME_CHARS]
    if shown.isascii() and shown.isidentifier():
        return shown
    return quoted(shown.encode("utf-8", "replace").decode())


def _path(steps: Sequence[str | int]) -> str:
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def _plain(value: object) -> bool:
    """Whether a value is no text beyond ASCII for certain."""
    return value.isascii() if isinstance(value, str) else isinstance(value, int | float)


def _unencodable(value: object, path: str) -> str | None:
    if isinstance(value, str):
        return None if value.isascii() or _encodes(value) else path
    if isinstance(value, Mapping):
        inner = ((item, f"{path}.{name}" if path else name) for name, item in value.items())
    elif isinstance(value, list):
        inner = ((item, f"{path}[{index}]") for index, item in enumerate(value))
    else:
        return None
    return next((found for item, where in inner if (found := _unencodable(item, where)) is not None), None)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _normal(value: Any) -> Any:
    """JSON Schema takes 20.0 for a whole number; so do we, but as one."""
    return int(value) if isinstance(value, float) else value
