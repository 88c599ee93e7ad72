"""Answers a client's first questions from prepared bytes while the SDK is still being imported.

Hosts begin with ``initialize`` or ``server/discover`` and ask for the lists. What this server says to that depends on
its version and two settings only, so `prepared.json` holds it, as the SDK says it (a test makes it anew and compares).
Any other request is left to the SDK, and so is everything after it.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from pathlib import Path
from typing import Any, Literal

import msgspec

from mcp_front.stdio.file_descriptors import ClientDescriptors

PREPARED = Path(__file__).with_name("prepared.json")
"""Results by era and method. ``python -m tests.mcp_front.stdio.prepare`` writes it."""
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Protocol versions that begin with ``initialize``; another one is answered with the last of them."""
NEWEST_VERSION = "2026-07-28"
"""The version of the era without ``initialize``."""
VERSION_MARK = b"{version}"
"""Stands in `PREPARED` for the product's version."""
LOOK_S = 0.05
"""How long the thread may go on after the imports before it notices that it is no longer needed."""
MAX_READ_BYTES = 64 * 1024
"""More than the first questions take."""


class AlreadyRead(msgspec.Struct, frozen=True):
    """What the session still has to read of what was read before it, and the id there that was answered."""

    data: bytes = b""
    request_id: str | int | None = None


class _ClientInfo(msgspec.Struct):
    name: str
    version: str


class _Handshake(msgspec.Struct):
    protocol_version: str = msgspec.field(name="protocolVersion")
    capabilities: dict[str, Any]
    client: _ClientInfo = msgspec.field(name="clientInfo")


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a list is asked for with in the older eras."""

    progress_token: str | int = msgspec.field(name="progressToken", default=0)


class _Plain(msgspec.Struct, forbid_unknown_fields=True):
    meta: _Asked = msgspec.field(name="_meta", default=_Asked())


class _AskedNewest(msgspec.Struct, forbid_unknown_fields=True):
    version: str = msgspec.field(name="io.modelcontextprotocol/protocolVersion")
    capabilities: dict[str, dict[str, Any]] = msgspec.field(name="io.modelcontextprotocol/clientCapabilities")
    client: _ClientInfo | None = msgspec.field(name="io.modelcontextprotocol/clientInfo", default=None)
    progress_token: str | int = msgspec.field(name="progressToken", default=0)


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    meta: _AskedNewest = msgspec.field(name="_meta")


class Request(msgspec.Struct):
    """A line from the client. Without ``id`` it is a notification."""

    jsonrpc: Literal["2.0"]
    method: str
    id: str | int | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")


class Prepared:
    """What is answered to the first questions. It remembers whether a session of the older eras has begun.

    ``version`` is the product's. ``uploads`` and ``downloads``: the operator has named a directory for them, so some
    tools take or write files.
    """

    def __init__(self, *, version: str, uploads: bool = False, downloads: bool = False) -> None:
        self._version = version
        self._tools = tools_key(uploads=uploads, downloads=downloads)
        self._results: dict[str, msgspec.Raw] | None = None
        self._begun = False

    def answer(self, request: Request) -> bytes | None:
        """The line that answers a plain request; None for any other."""
        try:
            result = self._result(request.method, request.params)
        except (msgspec.DecodeError, RecursionError):
            return None
        if result is None:
            return None
        return msgspec.json.encode({"jsonrpc": "2.0", "id": request.id, "result": result}) + b"\n"

    def _result(self, method: str, params: msgspec.Raw) -> msgspec.Raw | None:
        if method == "initialize":
            asked = msgspec.json.decode(params, type=_Handshake).protocol_version
            self._begun = True
            return self._known(method, asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1])
        if self._begun:
            msgspec.json.decode(params, type=_Plain)
            return self._known(method, HANDSHAKE_VERSIONS[-1])
        if msgspec.json.decode(params, type=_Envelope).meta.version != NEWEST_VERSION:
            return None
        return self._known(method, NEWEST_VERSION)

    def _known(self, method: str, version: str) -> msgspec.Raw | None:
        if self._results is None:
            text = PREPARED.read_bytes().replace(VERSION_MARK, self._version.encode())
            self._results = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        return self._results.get(f"{version} {self._tools if method == 'tools/list' else method}")


def tools_key(*, uploads: bool, downloads: bool) -> str:
    """The name in `PREPARED` of a list of tools."""
    return "tools/list" + " uploads" * uploads + " downloads" * downloads


class Opening:
    """Reads and answers in a thread of its own until `finish`, or up to a request that it does not know."""

    def __init__(self, descriptors: ClientDescriptors, prepared: Prepared) -> None:
        self._wire = descriptors
        self._prepared = prepared
        self._unread = bytearray()
        """What the session has to read."""
        self._first: str | int | None = None
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name="opening", daemon=True)

    def start(self) -> None:
        """Begin to read, where the input is one that can be waited for."""
        if sys.platform != "win32":
            self._thread.start()

    def finish(self) -> AlreadyRead:
        """Stop reading; what is still to be read belongs before whatever comes next."""
        self._enough.set()
        if self._thread.ident is not None:
            self._thread.join()
        return AlreadyRead(bytes(self._unread), self._first)

    def _run(self) -> None:
        rest = b""
        try:
            while not self._enough.is_set() and len(rest) < MAX_READ_BYTES:
                readable, _, _ = select.select([self._wire.read_fd], [], [], LOOK_S)
                if not readable:
                    continue
                data = os.read(self._wire.read_fd, MAX_READ_BYTES)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for number, line in enumerate(lines):
                    if not self._take(line):
                        rest = b"\n".join([*lines[number:], rest])
                        return
        except OSError:
            return  # The next read or write fails in the same way.
        finally:
            self._unread += rest

    def _take(self, line: bytes) -> bool:
        """Answer a line or leave it to the session. Whether the next line may be answered."""
        try:
            request = msgspec.json.decode(line, type=Request)
        except (msgspec.DecodeError, RecursionError):
            return False
        answer = None if request.id is None else self._prepared.answer(request)
        if request.id is not None and answer is None:
            return False
        if request.id is None or self._first is None:
            # The first request decides the era, so the session gets it, too. Its second answer is dropped.
            self._first = request.id if self._first is None else self._first
            self._unread += line + b"\n"
        while answer:
            answer = answer[os.write(self._wire.write_fd, answer) :]
        return True
