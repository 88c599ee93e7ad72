"""What a sandbox host does where the standard and running hosts differ (FMSG-003), and how large things may be.

Each surprise of a running host is one field of `Switches`. The defaults are what current hosts do; `OLDER` is a host
from before hashes, reactions and thread answers; `PLAIN` is a host by the letter of the standard; `ROUGH` adds the
races that current hosts show now and then to every message.
"""

from __future__ import annotations

import msgspec

MEBIBYTE = 1024 * 1024
"""Hosts give their limits in MiB."""


class Switches(msgspec.Struct, frozen=True, kw_only=True):
    """The behaviour of one host. Times in seconds."""

    drafts_shown: bool = True
    """Show a draft to the recipients it names (``time: null`` in list, get, data and thread)."""

    null_lists: bool = True
    """Give null for an empty ``to``, ``add_to`` or ``attachments``; else an empty list."""

    thread_omits_empty: bool = True
    """Leave false booleans and empty values out of thread answers."""

    thread_delivery_null: bool = True
    """Give ``to_delivery: null`` in the add-to batches of thread answers."""

    sender_code_200: bool = True
    """Show a delivered recipient to the sender with ``response_code`` 200; else with null."""

    frames_out_of_order: bool = True
    """Swap neighbours among events that are waiting at the same time, about one in four."""

    event_lead_s: float = 0.0
    """Push ``new_msg`` this long before the message is readable or listed. Current hosts: an instant, now and then."""

    sockets_outlive_tokens: bool = True
    """Keep a socket open after its token expired or its key was revoked; else close it then."""

    send_buffer_frames: int = 16
    """Frames a socket may have waiting; the next one closes it. 0 means no bound."""

    reaction_event_subject: bool = True
    """Put the refreshed subject in a ``reaction`` event; else the reaction message."""

    broken_inputs_500: bool = True
    """Answer 500 to what breaks a host: a draft whose topic is over 255 characters or holds a NUL, and the sending of a
    topic of over 255 bytes or to over 255 recipients. Else 400 for the draft."""

    long_names_hang: bool = True
    """Never answer the upload of an attachment with a name over 255 bytes; else 400."""

    backslash_names_lost: bool = True
    """Take an attachment name with a backslash, and answer 404 when it is fetched."""

    batch_reply_by_hash: bool = True
    """Refuse a reply by plain number from somebody who is only in an add-to batch (403)."""

    hash_ids: bool = True
    """Accept a message's sha256 as ``{id}`` in a path."""

    hashes: bool = True
    """Give ``sha256`` of messages and batches, and accept them as ``pid``."""

    thread_messages: bool = True
    """Have ``GET /fmsg/{id}/thread/messages``; else 404."""

    reactions: bool = True
    """Have ``POST /fmsg/{id}/react`` and the fields ``reaction`` and ``reactions``."""

    terminal: bool = True
    """Have the field ``terminal``; an older host ignores it."""

    to_delivery: bool = True
    """Have the field ``to_delivery``."""

    short_text_bytes: int = 768
    """Longest ``short_text``; 0 turns it off."""

    delivery_delay_s: float = 0.0
    """Time from send to the delivery itself and its confirmation."""

    retry_s: float = 1.0
    """Time until a delivery to an unreachable domain is tried again. Public hosts take minutes."""

    ping_s: float = 45.0
    """Time between pings on a socket."""

    pong_wait_s: float = 60.0
    """A socket without a pong for this long is dropped without a close frame."""

    token_life_s: float = 43_200.0
    """Life of an access token at the start: 12 h, as public hosts have it."""

    token_leeway_s: float = 10.0
    """How long past ``exp`` a token is still taken."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes a host refuses beyond (FMSG-003: they belong to the host)."""

    body_bytes: int = 10 * MEBIBYTE
    """Message body; 413 beyond."""

    attachment_bytes: int = 10 * MEBIBYTE
    """One attachment; 413 beyond, so that one of exactly this size is taken."""

    message_bytes: int = 20 * MEBIBYTE
    """Body and attachments together; 413 beyond."""

    topic_bytes: int = 255
    """The topic's length is one byte on the wire. A draft may have as many characters."""

    recipients: int = 255
    """The number of recipients is one byte on the wire."""

    filename_bytes: int = 255
    """The length of an attachment's name is one byte on the wire."""

    thread_messages: int = 100
    """Longest lineage of a thread answer; 422 beyond."""

    thread_text_bytes: int = 32 * MEBIBYTE
    """Text of a thread answer; 413 beyond."""

    client_frame_bytes: int = 1024
    """Longest text frame from a client; 1009 beyond."""


OLDER = Switches(
    hash_ids=False,
    hashes=False,
    thread_messages=False,
    reactions=False,
    terminal=False,
    to_delivery=False,
    sender_code_200=False,
    batch_reply_by_hash=False,
)
"""A host from before hashes, reactions, terminal messages, delivery objects and thread answers."""

PLAIN = Switches(
    drafts_shown=False,
    null_lists=False,
    thread_omits_empty=False,
    thread_delivery_null=False,
    frames_out_of_order=False,
    sockets_outlive_tokens=False,
    send_buffer_frames=0,
    broken_inputs_500=False,
    long_names_hang=False,
    backslash_names_lost=False,
)
"""A host by the letter of the standard."""

ROUGH = Switches(event_lead_s=0.05, delivery_delay_s=0.05)
"""A current host with the races made common: events before readability, deliveries confirmed late."""

PRESETS = {"current": Switches(), "older": OLDER, "plain": PLAIN, "rough": ROUGH}
"""Presets by the name an operator gives."""
