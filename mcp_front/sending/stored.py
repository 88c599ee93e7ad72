"""Files that came before the message they are for: each rests on the host, on a draft of the caller's own.

So no byte of one is kept here, the host's own limits hold, and nobody but the caller can read it. The draft is
addressed to the caller and is never sent. A worker deletes it after an hour.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from fmsg.errors import BadInput, Forbidden, NotFound
from fmsg.message import Draft
from fmsg.reference import format_reference, parse_reference
from mcp_front.sending.deliver import Post
from mcp_front.sending.uploads import STORED_NAME

if TYPE_CHECKING:
    from fmsg.webapi import WebApi

UPLOAD_S = 3600.0
"""How long a file is kept for the message that takes it."""
TOPIC = "An upload that waits for its message"
_HANDLE = re.compile(r"upload-([0-9]{1,19})", re.ASCII)


class Stored(msgspec.Struct, frozen=True):
    """A file that is kept: the handle that a message names it by, and its size in bytes."""

    handle: str
    size: int


async def keep(post: Post, address: str, chunks: AsyncIterator[bytes]) -> Stored:
    """Store a file on the host. Raises what the host says; then nothing is left of it."""
    draft = Draft(from_=address, to=(address,), type="text/plain;charset=UTF-8", size=0, data="", topic=TOPIC)
    draft_id, attached = await post.hold(draft, STORED_NAME, chunks, for_s=UPLOAD_S)
    return Stored(f"upload-{format_reference(draft_id)}", attached.size)


async def find(api: WebApi, handle: str, *, argument: str) -> int:
    """The draft that holds an upload. Raises `BadInput` naming the argument where there is none."""
    match = _HANDLE.fullmatch(handle)
    try:
        if match is not None:
            draft_id = parse_reference(match[1])
            message = await api.message(draft_id)
            names = [info.filename for info in message.attachments or ()]
            if message.is_draft and message.topic == TOPIC and STORED_NAME in names:
                return draft_id
    except (BadInput, Forbidden, NotFound):
        pass
    raise BadInput(f"{argument}: there is no such upload. One is kept for an hour: upload the file once more.")
