"""Answers ``initialize`` on stdio while the SDK is still being imported.

Its models take half a second to build, in which a client would sit before a silent process. What is answered is what
the SDK answers a moment later to the same line (a test holds the two together); that second answer is dropped. A line
that is anything but a plain ``initialize`` is left to the SDK.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from typing import Any

import msgspec

from mcp_front.instructions import instructions
from mcp_front.stdio.file_descriptors import ClientDescriptors

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Protocol versions that begin with ``initialize``; another one is answered with the last of them."""
SERVER_NAME = "fmsg-mcpd"
SERVER_TITLE = "fmsg"
CAPABILITIES: dict[str, dict[str, bool]] = {
    "completions": {},
    "prompts": {"listChanged": False},
    "resources": {"listChanged": False, "subscribe": False},
    "tools": {"listChanged": False},
}
"""What the server object offers in those versions; the SDK derives the same from its handlers."""
LOOK_S = 0.05
"""How long the thread may go on after the imports before it notices that it is no longer needed."""
MAX_LINE_BYTES = 64 * 1024
"""A first line longer than this is no plain ``initialize``."""


class AlreadyRead(msgspec.Struct, frozen=True):
    """What was read before the SDK was imported, and the id of the request that was answered."""

    data: bytes = b""
    request_id: str | int | None = None


class _Client(msgspec.Struct):
    name: str
    version: str


class _Params(msgspec.Struct):
    protocol_version: str = msgspec.field(name="protocolVersion")
    capabilities: dict[str, Any]
    client: _Client = msgspec.field(name="clientInfo")


class _Initialize(msgspec.Struct):
    jsonrpc: str
    id: str | int
    method: str
    params: _Params


class EarlyInitialize:
    """Reads the first line in a thread of its own and answers it. ``version`` is the product's."""

    def __init__(self, descriptors: ClientDescriptors, *, version: str) -> None:
        self._wire = descriptors
        self._version = version
        self._data = bytearray()
        self._answered: str | int | None = None
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name="early-initialize", daemon=True)

    def start(self) -> None:
        """Begin to read, where the input is one that can be waited for."""
        if sys.platform != "win32":
            self._thread.start()

    def finish(self) -> AlreadyRead:
        """Stop reading; what was read belongs before whatever comes next."""
        self._enough.set()
        if self._thread.ident is not None:
            self._thread.join()
        return AlreadyRead(bytes(self._data), self._answered)

    def _run(self) -> None:
        try:
            while not self._enough.is_set() and b"\n" not in self._data and len(self._data) < MAX_LINE_BYTES:
                readable, _, _ = select.select([self._wire.read_fd], [], [], LOOK_S)
                if not readable:
                    continue
                data = os.read(self._wire.read_fd, MAX_LINE_BYTES)
                if not data:
                    return
                self._data += data
            line, newline, _ = bytes(self._data).partition(b"\n")
            if newline:
                self._answer(line)
        except OSError:
            return  # The next read or write fails in the same way.

    def _answer(self, line: bytes) -> None:
        told = early_answer(line, version=self._version)
        if told is None:
            return
        request_id, answer = told
        self._answered = request_id
        while answer:
            answer = answer[os.write(self._wire.write_fd, answer) :]


def early_answer(line: bytes, *, version: str) -> tuple[str | int, bytes] | None:
    """The id of a plain ``initialize`` and the line that answers it; None for any other line."""
    try:
        request = msgspec.json.decode(line, type=_Initialize)
    except (msgspec.DecodeError, RecursionError):
        return None
    if request.jsonrpc != "2.0" or request.method != "initialize":
        return None
    asked = request.params.protocol_version
    result = {
        "capabilities": CAPABILITIES,
        "instructions": instructions(None),
        "protocolVersion": asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
        "serverInfo": {"name": SERVER_NAME, "title": SERVER_TITLE, "version": version},
    }
    return request.id, msgspec.json.encode({"jsonrpc": "2.0", "id": request.id, "result": result}) + b"\n"
