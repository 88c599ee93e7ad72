"""Reactions (FMSG-005): what a single emoji is, and the message a reaction is sent as."""

from __future__ import annotations

import re

from sandbox.core import Core
from sandbox.courier import record_reaction
from sandbox.mail import refuse_unknown_parents
from sandbox.records import Recipient, Record, lowered
from sandbox.wire import Refused

MAX_EMOJI_BYTES = 64
"""The longest reaction (FMSG-005)."""

REACTION_TYPE = "text/plain;charset=UTF-8"
"""The media type of a reaction message (FMSG-005)."""

_PICTURE = (
    "[\u231a\u231b\u23e9-\u23ec\u23f0\u23f3\u25fd\u25fe\u2614\u2615\u2648-\u2653\u267f\u2693\u26a1\u26aa\u26ab"
    "\u26bd\u26be\u26c4\u26c5\u26ce\u26d4\u26ea\u26f2\u26f3\u26f5\u26fa\u26fd\u2705\u270a\u270b\u2728\u274c\u274e"
    "\u2753-\u2755\u2757\u2795-\u2797\u27b0\u27bf\u2b1b\u2b1c\u2b50\u2b55\U0001f004\U0001f0cf\U0001f18e"
    "\U0001f191-\U0001f19a\U0001f201\U0001f21a\U0001f22f\U0001f232-\U0001f236\U0001f238-\U0001f23a\U0001f250"
    "\U0001f251\U0001f300-\U0001f320\U0001f32d-\U0001f335\U0001f337-\U0001f37c\U0001f37e-\U0001f393"
    "\U0001f3a0-\U0001f3ca\U0001f3cf-\U0001f3d3\U0001f3e0-\U0001f3f0\U0001f3f4\U0001f3f8-\U0001f43e\U0001f440"
    "\U0001f442-\U0001f4fc\U0001f4ff-\U0001f53d\U0001f54b-\U0001f54e\U0001f550-\U0001f567\U0001f57a\U0001f595"
    "\U0001f596\U0001f5a4\U0001f5fb-\U0001f64f\U0001f680-\U0001f6c5\U0001f6cc\U0001f6d0-\U0001f6d2"
    "\U0001f6d5-\U0001f6d8\U0001f6dc-\U0001f6df\U0001f6eb\U0001f6ec\U0001f6f4-\U0001f6fc\U0001f7e0-\U0001f7eb"
    "\U0001f7f0\U0001f90c-\U0001f93a\U0001f93c-\U0001f945\U0001f947-\U0001f9ff\U0001fa70-\U0001fa7c"
    "\U0001fa80-\U0001fa8a\U0001fa8e-\U0001fac6\U0001fac8\U0001facd-\U0001fadc\U0001fadf-\U0001faea"
    "\U0001faef-\U0001faf8]"
)
"""Characters that are emoji by themselves (UTS #51, Emoji_Presentation)."""

_TEXT = (
    "[#*0-9\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u2328\u23cf\u23ed-\u23ef\u23f1\u23f2"
    "\u23f8-\u23fa\u24c2\u25aa\u25ab\u25b6\u25c0\u25fb\u25fc\u2600-\u2604\u260e\u2611\u2618\u261d\u2620\u2622"
    "\u2623\u2626\u262a\u262e\u262f\u2638-\u263a\u2640\u2642\u265f\u2660\u2663\u2665\u2666\u2668\u267b\u267e"
    "\u2692\u2694-\u2697\u2699\u269b\u269c\u26a0\u26a7\u26b0\u26b1\u26c8\u26cf\u26d1\u26d3\u26e9\u26f0\u26f1"
    "\u26f4\u26f7-\u26f9\u2702\u2708\u2709\u270c\u270d\u270f\u2712\u2714\u2716\u271d\u2721\u2733\u2734\u2744"
    "\u2747\u2763\u2764\u27a1\u2934\u2935\u2b05-\u2b07\u3030\u303d\u3297\u3299\U0001f170\U0001f171\U0001f17e"
    "\U0001f17f\U0001f202\U0001f237\U0001f321\U0001f324-\U0001f32c\U0001f336\U0001f37d\U0001f396\U0001f397"
    "\U0001f399-\U0001f39b\U0001f39e\U0001f39f\U0001f3cb-\U0001f3ce\U0001f3d4-\U0001f3df\U0001f3f3\U0001f3f5"
    "\U0001f3f7\U0001f43f\U0001f441\U0001f4fd\U0001f549\U0001f54a\U0001f56f\U0001f570\U0001f573-\U0001f579"
    "\U0001f587\U0001f58a-\U0001f58d\U0001f590\U0001f5a5\U0001f5a8\U0001f5b1\U0001f5b2\U0001f5bc"
    "\U0001f5c2-\U0001f5c4\U0001f5d1-\U0001f5d3\U0001f5dc-\U0001f5de\U0001f5e1\U0001f5e3\U0001f5e8\U0001f5ef"
    "\U0001f5f3\U0001f5fa\U0001f6cb\U0001f6cd-\U0001f6cf\U0001f6e0-\U0001f6e5\U0001f6e9\U0001f6f0\U0001f6f3]"
)
"""Characters that are emoji only with U+FE0F or a skin tone, such as U+2764, the heart."""

_TONE = "[\U0001f3fb-\U0001f3ff]"
_ELEMENT = f"(?:{_PICTURE}(?:\ufe0f|{_TONE})?|{_TEXT}(?:\ufe0f\u20e3?|{_TONE}))"
_EMOJI = re.compile(
    "(?:[\U0001f1e6-\U0001f1ff]{2}"
    "|\U0001f3f4[\U000e0020-\U000e007e]{3,}\U000e007f"
    f"|{_ELEMENT}(?:\u200d{_ELEMENT})*)"
)


def is_single_emoji(text: str) -> bool:
    """Whether the text is one emoji: a flag, keycap, tag sequence or ZWJ sequence of emoji (UTS #51)."""
    return len(text.encode("utf-8", "surrogatepass")) <= MAX_EMOJI_BYTES and _EMOJI.fullmatch(text) is not None


def react(core: Core, caller: str, subject: Record, emoji: object) -> tuple[int, Record | None]:
    """``POST /fmsg/{id}/react``: the HTTP status and the reaction message that counts now, None where there is none."""
    if emoji is not None and not isinstance(emoji, str):
        raise Refused(400, "emoji must be a single emoji, or empty to clear")
    wanted = emoji or ""
    if wanted and not is_single_emoji(wanted):
        raise Refused(400, "emoji must be a single emoji, or empty to clear")
    lower = lowered(caller)
    if not core.sees(subject, caller):
        raise Refused(403, "not a participant of this message")
    if subject.is_draft:
        raise Refused(409, "message is a draft")
    if subject.terminal:
        raise Refused(409, "message is terminal")
    others = [address for other, address in subject.participants().items() if other != lower]
    if not others:
        raise Refused(409, "message has no other participant")
    current = subject.reactions.get(lower)
    if current is None and not wanted:
        return 200, None
    if current is not None and current.emoji == wanted:
        return 200, core.state.messages[current.message_id]
    return 201, _send(core, caller, subject, wanted, others)


def _send(core: Core, caller: str, subject: Record, emoji: str, others: list[str]) -> Record:
    lower = lowered(caller)
    pid_hash = subject.sha256
    if not subject.is_primary(lower):
        pid_hash = next((batch.sha256 for batch in subject.add_to if batch.names(lower)), pid_hash)
    data = emoji.encode()
    record = Record(
        id=core.state.take_id(),
        from_=caller,
        to=[Recipient(addr=address) for address in others],
        type=REACTION_TYPE,
        data=data,
        pid=subject.id,
        pid_hash=pid_hash,
        no_reply=True,
        terminal=True,
        reaction=emoji,
    )
    refuse_unknown_parents(core, record, "reaction")
    core.state.publish(record, core.state.stamp(after=subject))
    record_reaction(core, record)
    core.courier.dispatch(record)
    return record
