"""A message about to be sent, with credentials already taken out of what it says (FMSG-007, Secret redaction)."""

from __future__ import annotations

import msgspec

from fmsg.message import Draft
from fmsg.redact import redact
from mcp_front.sending.uploads import Upload

DEFAULT_TYPE = "text/markdown; charset=utf-8"
"""FMSG-007, send_message."""


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """What `compose` made. ``parent`` is what the host is told (an id or a batch's hash), ``parent_id`` its id."""

    from_: str
    to: tuple[str, ...]
    topic: str
    body: str
    type: str
    important: bool
    no_reply: bool
    parent: int | str | None
    parent_id: int | None
    uploads: tuple[Upload, ...]
    redactions: int

    def draft(self) -> Draft:
        """The draft to create. A reply has no topic (FMSG-003)."""
        return Draft(
            from_=self.from_,
            to=self.to,
            type=self.type,
            size=len(self.body.encode()),
            data=self.body,
            pid=self.parent,
            topic=self.topic or None,
            important=self.important,
            no_reply=self.no_reply,
        )


def compose(
    *,
    from_: str,
    to: tuple[str, ...],
    body: str,
    topic: str = "",
    type_: str = DEFAULT_TYPE,
    important: bool = False,
    no_reply: bool = False,
    parent: int | str | None = None,
    parent_id: int | None = None,
    uploads: tuple[Upload, ...] = (),
) -> Outgoing:
    """The message with every credential in topic and body replaced, and how many there were."""
    clean_topic, in_topic = redact(topic)
    clean_body, in_body = redact(body)
    return Outgoing(
        from_=from_,
        to=to,
        topic=clean_topic,
        body=clean_body,
        type=type_,
        important=important,
        no_reply=no_reply,
        parent=parent,
        parent_id=parent_id,
        uploads=uploads,
        redactions=in_topic + in_body,
    )
