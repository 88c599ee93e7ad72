"""A tool's arguments as one type: its JSON Schema, its decoding, and what is wrong with arguments that do not fit.

Models write almost what a schema asks for. What can mean only one thing is read as that: ``null`` and, where no empty
value makes sense, ``""`` as absent; digits as a whole number; ``"true"`` as a boolean; JSON text as an array. A message
id is never made from a number, which may have lost digits on its way (FMSG-007, Message References).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec import Meta
from msgspec import inspect as kinds

from fmsg.errors import BadInput
from mcp_front.framing import quoted

REFERENCE_PATTERN = "^[0-9]{1,19}$"
"""It shows a client the form; `fmsg.reference` decides."""

Reference = Annotated[str, Meta(pattern=REFERENCE_PATTERN)]
"""A message reference."""
Filled = Annotated[str, Meta(min_length=1)]
"""Text that is never empty."""
Names = Annotated[
    tuple[Annotated[str, Meta(min_length=1, description="@user@domain or short name")], ...], Meta(min_length=1)
]
"""Addresses or short names, at least one."""

MOST_FAULTS = 10
"""Told of one call. An array of a hundred thousand wrong items must not cost seconds."""

MOST_LOOKED_CHARS = 1024 * 1024
"""Looked through at once: some milliseconds."""

SHOWN_NAME_CHARS = 60
"""Of a name that a caller made up; the rest tells it nothing."""

_DIGITS = re.compile(r"\s*(-?[0-9]{1,18})\s*", re.ASCII)
_FLAGS = {"true": True, "false": False}
_CUT = re.compile("[\ud800-\udfff]")


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all arguments. A field's `Meta` holds its bounds and its description."""

    elsewhere: ClassVar[Mapping[str, str]] = {}
    """Names that another deployment takes, with what to say of them here."""
    aliases: ClassVar[Mapping[str, str]] = {}
    """Names that other servers have for an argument."""


A = TypeVar("A", bound=Arguments)


def read_arguments(tool: str, kind: type[A], given: object) -> A:
    """The arguments. Raises `BadInput` that names every argument that does not fit, the reason, and what fits."""
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise BadInput(f"{tool}: arguments must be an object.")
    try:
        taken = msgspec.convert(given, kind)
    except msgspec.ValidationError:
        reading = _Reading(tool)
        mended = reading.object(given, _fields(kind), kind, "")
        if reading.faults:
            raise BadInput("\n".join(reading.faults)) from None
        taken = msgspec.convert(mended, kind)
    broken = None if all(map(_plain, given.values())) else _half_pair(given, "")
    if broken is not None:
        raise BadInput(f"{broken}: holds half a surrogate pair, which is no text. Send the whole character.")
    return taken


def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema of the arguments: closed, inline, and with one ``type`` per value, which every client can use."""
    fields = sorted(_fields(kind), key=lambda field: not field.required)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {field.encode_name: _field_schema(field) for field in fields},
        "additionalProperties": False,
    }
    required = [field.encode_name for field in fields if field.required]
    return {**schema, "required": required} if required else schema


def _fields(kind: type) -> tuple[kinds.Field, ...]:
    info = _info(kind)
    if not isinstance(info, kinds.StructType):
        raise TypeError(f"{kind.__name__} is no Struct")
    return info.fields


@cache
def _info(kind: type) -> kinds.Type:
    return kinds.type_info(kind)


def _field_schema(field: kinds.Field) -> dict[str, Any]:
    kind = field.type if field.required else _present(field.type)
    shown = {} if field.default in (None, (), msgspec.NODEFAULT) else {"default": field.default}
    return _schema(kind) | shown


def _present(kind: kinds.Type) -> kinds.Type:
    """The type of an optional argument that is given."""
    if not isinstance(kind, kinds.UnionType):
        return kind
    (present,) = [inner for inner in kind.types if not isinstance(inner, kinds.NoneType)]
    return present


def _schema(kind: kinds.Type) -> dict[str, Any]:
    match kind:
        case kinds.Metadata():
            return _schema(kind.type) | (kind.extra_json_schema or {})
        case kinds.StrType():
            # No minLength: an empty text counts as absent.
            return _bounded("string", maxLength=kind.max_length, pattern=kind.pattern)
        case kinds.IntType():
            return _bounded("integer", minimum=kind.ge, maximum=kind.le)
        case kinds.BoolType():
            return {"type": "boolean"}
        case kinds.NoneType():
            return {"type": "null"}
        case kinds.LiteralType():
            return {"type": "string", "enum": list(kind.values)}
        case kinds.VarTupleType():
            array = _bounded("array", minItems=kind.min_length, maxItems=kind.max_length)
            return array | {"items": _schema(kind.item_type)}
        case kinds.StructType():
            return schema_of(kind.cls)
        case kinds.UnionType():
            return {"anyOf": [_schema(inner) for inner in kind.types]}
        case _:
            raise TypeError(f"no argument has the type {kind!r}")


def _bounded(name: str, **bounds: Any) -> dict[str, Any]:
    return {"type": name} | {keyword: bound for keyword, bound in bounds.items() if bound is not None}


class _Reading:
    """One look at arguments that do not fit as they are: mends what is clear, collects what is not."""

    def __init__(self, tool: str) -> None:
        self.faults: list[str] = []
        self._tool = tool

    def object(
        self, given: Mapping[str, Any], fields: Sequence[kinds.Field], kind: type[msgspec.Struct], path: str
    ) -> dict[str, Any]:
        """An object with its fields mended."""
        mended: dict[str, Any] = {}
        aliases = kind.aliases if issubclass(kind, Arguments) else {}
        given = {name if aliases.get(name, name) in given else aliases[name]: given[name] for name in given}
        for field in fields:
            name = field.encode_name
            if name not in given:
                if field.required:
                    self._fault(_at(path, name), f"is missing; {self._tool} needs it.{_meaning(field.type)}")
                continue
            value = given[name]
            if not field.required and (value is None or (value == "" and not _takes_empty(_present(field.type)))):
                continue
            mended[name] = self._value(value, field.type if field.required else _present(field.type), _at(path, name))
        known = {field.encode_name for field in fields}
        for name in given:
            if name not in known:
                takes = ", ".join(field.encode_name for field in fields) or "no arguments"
                elsewhere = kind.elsewhere if issubclass(kind, Arguments) else {}
                told = elsewhere.get(name, f"{self._tool} has no such argument. It takes {takes}.")
                self._fault(_at(path, _shown_name(name)), told)
        return mended

    def _value(self, value: Any, kind: kinds.Type, path: str) -> Any:
        match kind:
            case kinds.Metadata():
                return self._value(value, kind.type, path)
            case kinds.StrType():
                return self._text(value, kind, path)
            case kinds.IntType():
                return self._whole(value, kind, path)
            case kinds.BoolType():
                value = _FLAGS.get(value.strip().lower(), value) if isinstance(value, str) else value
                return value if isinstance(value, bool) else self._fault(path, "must be true or false.")
            case kinds.LiteralType():
                named = ", ".join(map(str, kind.values))
                fits = isinstance(value, str) and value in kind.values
                return value if fits else self._fault(path, f"must be one of {named}.")
            case kinds.VarTupleType():
                return self._array(value, kind, path)
            case kinds.StructType():
                value = _parsed(value, "{", dict)
                if not isinstance(value, Mapping):
                    return self._fault(path, "must be an object, in { }.")
                return self.object(value, kind.fields, kind.cls, path)
            case _:  # Text or null: the only pair there is.
                fits = value is None or isinstance(value, str)
                return value if fits else self._fault(path, "must be a string or null.")

    def _text(self, value: Any, kind: kinds.StrType, path: str) -> Any:
        if not isinstance(value, str):
            hint = " Message ids are strings of decimal digits." if kind.pattern == REFERENCE_PATTERN else ""
            return self._fault(path, f"must be a string.{hint}")
        if kind.pattern is not None and re.search(kind.pattern, value) is None:
            return self._fault(
                path, "is not a message reference. Pass the id as the string of digits that a result gave."
            )
        if len(value) < (kind.min_length or 0):
            return self._fault(path, "must not be empty.")
        if kind.max_length is not None and len(value) > kind.max_length:
            return self._fault(path, f"must be at most {kind.max_length} characters.")
        return value

    def _whole(self, value: Any, kind: kinds.IntType, path: str) -> Any:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        elif isinstance(value, str) and (digits := _DIGITS.fullmatch(value)):
            value = int(digits[1])
        if not isinstance(value, int) or isinstance(value, bool):
            return self._fault(path, "must be a whole number.")
        if kind.ge is not None and value < kind.ge:
            return self._fault(path, f"must be at least {kind.ge}.")
        if kind.le is not None and value > kind.le:
            return self._fault(path, f"must be at most {kind.le}.")
        return value

    def _array(self, value: Any, kind: kinds.VarTupleType, path: str) -> Any:
        value = _parsed(value, "[", list)
        least, most = kind.min_length or 0, kind.max_length
        if not isinstance(value, list):
            return self._fault(path, "must be an array, in [ ].")
        if len(value) < least:
            return self._fault(path, f"needs at least {least} item{'s' if least != 1 else ''}.")
        if most is not None and len(value) > most:
            return self._fault(path, f"takes at most {most} items; make several calls.")
        items = []
        for index, item in enumerate(value):
            if len(self.faults) >= MOST_FAULTS:
                break
            items.append(self._value(item, kind.item_type, f"{path}[{index}]"))
        return items

    def _fault(self, path: str, told: str) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(f"{path}: {told}")


def _parsed(value: Any, opening: str, kind: type) -> Any:
    """What JSON text stands for, where it stands for an array or object of that kind; else the value as it is."""
    if not isinstance(value, str) or not value[:SHOWN_NAME_CHARS].lstrip().startswith(opening):
        return value
    try:
        parsed = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return value
    return parsed if isinstance(parsed, kind) else value


def _takes_empty(kind: kinds.Type) -> bool:
    """Whether the empty text is a value of the type."""
    while isinstance(kind, kinds.Metadata):
        kind = kind.type
    return isinstance(kind, kinds.StrType) and not kind.min_length and kind.pattern is None


def _meaning(kind: kinds.Type) -> str:
    described = kind.extra_json_schema if isinstance(kind, kinds.Metadata) else None
    return f" It is: {described['description']}" if described and "description" in described else ""


def _shown_name(name: object) -> str:
    shown = str(name)[:SHOWN_NAME_CHARS]
    if shown.isascii() and shown.isidentifier():
        return shown
    return quoted(shown.encode("utf-8", "replace").decode())


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _plain(value: object) -> bool:
    """Whether a value is no text beyond ASCII for certain."""
    return value.isascii() if isinstance(value, str) else isinstance(value, int | float) or value is None


def _half_pair(value: object, path: str) -> str | None:
    """Where a text with half a surrogate pair is, which cannot be written as UTF-8.

    A text above `MOST_LOOKED_CHARS` is left to what encodes it in pieces.
    """
    if isinstance(value, str):
        plain = value.isascii() or len(value) > MOST_LOOKED_CHARS
        return None if plain or _CUT.search(value) is None else path
    if isinstance(value, Mapping):
        inner = ((item, _at(path, name)) for name, item in value.items())
    elif isinstance(value, list):
        inner = ((item, f"{path}[{index}]") for index, item in enumerate(value))
    else:
        return None
    return next((found for item, where in inner if (found := _half_pair(item, where)) is not None), None)
