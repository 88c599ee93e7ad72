"""What a line from the client is: a message for the server, an answer to give at once, or nothing.

Every line that has an ``id`` is answered with that id, whatever it is (JSON-RPC 2.0, 5). Before ``initialize`` nothing
is served to a client of the eras that begin with it (MCP, Lifecycle).
"""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
import msgspec

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
"""In ``_meta`` of every request of the eras that have no ``initialize``."""
BEFORE_INITIALIZE = frozenset({"initialize", "ping"})
"""What a client may ask first."""

_BOM = "\ufeff"


class LineAnswer(msgspec.Struct, frozen=True):
    """A line to write, without its end."""

    line: bytes


class LineReader:
    """Reads lines in order. It remembers whether the session has begun."""

    def __init__(self) -> None:
        self._first = True
        self._begun = False

    def read(self, line: bytes) -> types.JSONRPCMessage | LineAnswer | None:
        """The message in a line, or the error that answers it; None where there is nothing to do."""
        try:
            text = line.decode()
            if self._first:
                text, self._first = text.removeprefix(_BOM), False
            if not text.strip():
                return None
            # The library's own parser: it takes half a surrogate pair, which an argument's own check then names.
            fields = json.loads(text, parse_constant=_no_number)
        except (ValueError, RecursionError):
            return error(None, types.PARSE_ERROR, "The line is not JSON in UTF-8.")
        if not isinstance(fields, dict):
            return error(None, types.INVALID_REQUEST, "The line is not one JSON-RPC message; batches are not served.")
        return self._message(fields)

    def _message(self, fields: dict[str, Any]) -> types.JSONRPCMessage | LineAnswer | None:
        request_id, method = fields.get("id"), str(fields.get("method"))
        if "method" not in fields and ("result" in fields or "error" in fields):
            return None  # An answer, though this server asks its client nothing.
        fault = _fault(fields)
        if fault is not None:
            return error(request_id, types.INVALID_REQUEST, fault)
        params = fields.get("params")
        if "id" not in fields:
            return types.JSONRPCNotification(jsonrpc="2.0", method=method, params=params)
        if isinstance(request_id, bool) or not isinstance(request_id, str | int):
            return error(request_id, types.INVALID_REQUEST, "id: must be a string or a whole number.")
        if not self._begun and method not in BEFORE_INITIALIZE and not _of_newest_era(params):
            return error(request_id, types.INVALID_REQUEST, "Send initialize first; nothing is served before it.")
        self._begun |= method == "initialize"
        return types.JSONRPCRequest(jsonrpc="2.0", id=request_id, method=method, params=params)


def _fault(fields: dict[str, Any]) -> str | None:
    if fields.get("jsonrpc") != "2.0":
        return 'jsonrpc: must be "2.0".'
    if not isinstance(fields.get("method"), str):
        return "method: must be a string."
    if not isinstance(fields.get("params"), dict | None):
        return "params: must be an object."
    return None


def _of_newest_era(params: dict[str, Any] | None) -> bool:
    meta = (params or {}).get("_meta")
    return isinstance(meta, dict) and VERSION_KEY in meta


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def error(request_id: object, code: int, text: str) -> LineAnswer:
    """The answer to a line that is not served."""
    fields = {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}
    return LineAnswer(json.dumps(fields).encode())


def cancelled_request(message: types.JSONRPCMessage) -> types.RequestId | None:
    """The id of the request that a notification cancels, where it does and names one."""
    if not isinstance(message, types.JSONRPCNotification) or message.method != "notifications/cancelled":
        return None
    named = (message.params or {}).get("requestId")
    return named if isinstance(named, str | int) and not isinstance(named, bool) else None
