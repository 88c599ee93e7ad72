"""What a tool, a resource or a prompt is given besides its arguments."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_front.caller import Caller
from mcp_front.limits import UNBOUNDED_ROOM, AnswerRoom

if TYPE_CHECKING:
    from fmsg.directory import Directory
    from ledger.port import Store
    from mcp_front.settings import FrontSettings
    from mcp_front.waiting.wait import Waiting

Progress = Callable[[float, float | None, str], Awaitable[None]]
"""Reports progress to the client: so far, of how much where known, and in words."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """One request: who it acts as, and what the process has to serve it with."""

    caller: Caller
    settings: FrontSettings
    store: Store
    waiting: Waiting
    directory: Directory
    progress: Progress | None
    """None where the client asked for no progress."""
    drain: asyncio.Event
    """Set when the process is about to end: waits answer."""
    client: str = ""
    """The name the client gave itself; empty where it gave none."""
    answer: AnswerRoom = UNBOUNDED_ROOM
    """Memory for the content of the answer: tools reserve it before they fetch."""
