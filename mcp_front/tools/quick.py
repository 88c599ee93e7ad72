"""A quick yes for arguments that fit their schema, as nearly all do; whoever gets a no asks the validator why.

Walking a schema with a validator costs more than most tools do. Here a schema is turned into plain tests once. A test
may say no to what fits, never yes to what does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from mcp_front.schemas import Schema

Fits = Callable[[Any], bool]
"""Whether a value fits for certain."""

_TOLD = frozenset({"description", "default", "title", "examples", "$schema"})
"""Keywords that ask for nothing."""

_KINDS: dict[str, type] = {"string": str, "integer": int, "boolean": bool}
"""The types that have a test; others go the long way."""


def quick(schema: Schema) -> Fits:
    """The test for a schema. A keyword that is not known here makes it say no."""
    rules = {name: limit for name, limit in schema.items() if name not in _TOLD}
    kind = rules.pop("type", None)
    if kind == "object":
        return _object(rules)
    if kind == "array":
        return _array(rules)
    wanted = _KINDS.get(kind) if isinstance(kind, str) else None
    limits = [_LIMITS[name](limit) for name, limit in rules.items() if name in _LIMITS]
    if wanted is None or len(limits) < len(rules):
        return _never

    def fits(value: Any) -> bool:
        # `type`, since True is an int to `isinstance` and no whole number to JSON Schema.
        if type(value) is not wanted and not (wanted is int and type(value) is float and value.is_integer()):
            return False
        return all(limit(value) for limit in limits)

    return fits


def _object(rules: dict[str, Any]) -> Fits:
    if (
        rules.keys() - {"properties", "required", "additionalProperties"}
        or rules.get("additionalProperties") is not False
    ):
        return _never
    tests = {name: quick(inner) for name, inner in rules.get("properties", {}).items()}
    required = frozenset(rules.get("required", ()))

    def fits(value: Any) -> bool:
        if type(value) is not dict or not required <= value.keys():
            return False
        for name, item in value.items():
            test = tests.get(name)
            if test is None or not test(item):
                return False
        return True

    return fits


def _array(rules: dict[str, Any]) -> Fits:
    if rules.keys() - {"items", "minItems", "maxItems"} or "items" not in rules:
        return _never
    test, least, most = quick(rules["items"]), rules.get("minItems", 0), rules.get("maxItems", float("inf"))

    def fits(value: Any) -> bool:
        return type(value) is list and least <= len(value) <= most and all(map(test, value))

    return fits


def _pattern(limit: str) -> Fits:
    search = re.compile(limit).search
    return lambda value: search(value) is not None


def _never(_value: Any) -> bool:
    return False


_LIMITS: dict[str, Callable[[Any], Fits]] = {
    "minimum": lambda limit: lambda value: bool(value >= limit),
    "maximum": lambda limit: lambda value: bool(value <= limit),
    "minLength": lambda limit: lambda value: len(value) >= limit,
    "maxLength": lambda limit: lambda value: len(value) <= limit,
    "pattern": _pattern,
    "enum": lambda limit: lambda value: value in limit,
}
"""Tests of values whose type is right already."""
