"""``wait_for_message``: the arguments of a wait, and its outcome as a result an agent can go on from."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from fmsg.reference import format_reference, parse_position, parse_reference
from mcp_front import schemas
from mcp_front.framing import STATEMENT, Report, quoted, visible
from mcp_front.lineage import Lineage
from mcp_front.render import Fields, headline, reference, shown_address, shown_type
from mcp_front.settings import FrontSettings
from mcp_front.tools.arguments import Arguments, Filled, Reference
from mcp_front.tools.batch import THREAD_SHOWN, Fetched, FetchedBatch
from mcp_front.tools.context import ToolContext
from mcp_front.tools.names import resolve
from mcp_front.tools.read import newest_and_root, show_body, show_thread_message, thread_bodies, thread_item
from mcp_front.tools.tool import ToolResult, define
from mcp_front.waiting.request import Reason, WaitOutcome, WaitRequest

SETTLE_S = 3
"""A person's next line of the same thought usually follows within it."""
MOST_SETTLE_S = 60
"""Longer is another conversation, not the same burst."""
MOST_TIMEOUT_S = 86_400
"""Accepted so that no caller fails over it; a single call is capped far below."""
THREAD_BODY_BYTES = 4_096
"""Of each of them."""
SHOWN_PENDING = 5
SHOWN_SKIPPED = 10
"""Enough to see what happens; get_message and list_messages show the rest."""
TIMEOUT_BYTES = 560
"""A timeout is what an agent meets most often, so all of it stays below 600 bytes; details are dropped for that. Of
what is rare all is said: a store or host that is away, what was passed over for good, what is older than the wait."""
FILTERED: tuple[Reason, ...] = ("from_mismatch", "other_thread")
"""Reasons for which a message is passed over by this wait, and would be returned by another."""
PATIENT_S = 230.0
"""What a single call is capped at."""
CLIENTS: Mapping[str, tuple[float, float]] = {
    "claude-code": (PATIENT_S, PATIENT_S),
    "gemini-cli-mcp-client": (PATIENT_S, PATIENT_S),
    "goose": (PATIENT_S, PATIENT_S),
    "qwen-code-mcp-client": (PATIENT_S, PATIENT_S),
    "opencode": (50.0, PATIENT_S),
    "Visual Studio Code": (50.0, PATIENT_S),
}
"""Clients that are known to let a call run for longer than the usual minute, by the name they give: how long a call
waits by default without and with progress asked for. Some cut a call after five or ten minutes whatever happens, some a
minute after the last progress. All others get the operator's default."""


class WaitForMessage(Arguments, frozen=True, kw_only=True):
    """What to wait for, and how long."""

    after_id: (
        Annotated[
            Reference,
            Meta(
                description="after_id of the last result, or the id of a message you sent; 0: from the beginning; "
                "none: from now"
            ),
        ]
        | None
    ) = None
    thread_of: Annotated[Reference, Meta(description="Only the thread of this message")] | None = None
    from_: Annotated[Filled, Meta(description="Only from this address")] | None = msgspec.field(
        name="from", default=None
    )
    timeout_seconds: (
        Annotated[int, Meta(ge=0, le=MOST_TIMEOUT_S, description="Default: what your client allows, mostly 50")] | None
    ) = None
    settle_seconds: Annotated[
        int, Meta(ge=0, le=MOST_SETTLE_S, description="Return what follows on the thread within this time together")
    ] = SETTLE_S
    subscription: (
        Annotated[
            Filled,
            Meta(
                max_length=64,
                description="Name under which the server keeps your position; passing after_id acknowledges",
            ),
        ]
        | None
    ) = None
    include_thread: Annotated[bool, Meta(description="Also what was said before")] = False


async def _wait_for_message(context: ToolContext, arguments: WaitForMessage) -> ToolResult:
    request = _request(context, arguments)
    batch = FetchedBatch(context.caller, include_thread=arguments.include_thread, answer=context.answer)
    outcome = await context.waiting.wait(
        context.caller,
        request,
        progress=_progress(context, request.timeout_s),
        drain=context.drain,
        fit=batch.fit,
    )
    if outcome.status == "timeout":
        return _timeout(outcome, request)
    return await _message(context, outcome, request, batch)


def _request(context: ToolContext, arguments: WaitForMessage) -> WaitRequest:
    settings = context.settings
    after, thread, sender = arguments.after_id, arguments.thread_of, arguments.from_
    timeout_s = default_timeout_s(context) if arguments.timeout_seconds is None else float(arguments.timeout_seconds)
    return WaitRequest(
        after_id=None if after is None else parse_position(after),
        thread_of=None if thread is None else parse_reference(thread, name="thread_of"),
        from_=None if sender is None else resolve(context.directory, sender, argument="from").address,
        timeout_s=min(timeout_s, settings.wait_max_s),
        settle_s=float(arguments.settle_seconds),
        subscription=arguments.subscription,
    )


def _progress(context: ToolContext, timeout_s: float) -> Callable[[float], Awaitable[None]] | None:
    report = context.progress
    if report is None:
        return None

    async def tell(waited_s: float) -> None:
        await report(waited_s, timeout_s, "waiting for a message")

    return tell


def default_timeout_s(context: ToolContext) -> float:
    """How long a call waits that names no limit: as long as the client is known to let one run.

    An operator who set another default than the usual one wants that for every client.
    """
    settings = context.settings
    limits = CLIENTS.get(context.client)
    if limits is None or settings.wait_default_s != FrontSettings().wait_default_s:
        return settings.wait_default_s
    return min(limits[context.progress is not None], settings.wait_max_s)


def _timeout(outcome: WaitOutcome, request: WaitRequest) -> ToolResult:
    result = _nothing(outcome, _next(outcome, request, _again(outcome, request)))
    if _bytes(result) > TIMEOUT_BYTES:
        result = _nothing(outcome, _next(outcome, request, _again(outcome, None)))
    for details, spoken in _details(outcome):
        merged = {name: [*result.structured.get(name, ()), item] for name, item in details.items()}
        fuller = ToolResult(structured=result.structured | merged, text=f"{result.text}\n{spoken}")
        if _bytes(fuller) <= TIMEOUT_BYTES:
            result = fuller
    return result


def _nothing(outcome: WaitOutcome, following: str) -> ToolResult:
    first = outcome.notes[:1]
    structured = _common(outcome) | _counts(outcome) | ({"notes": [*first]} if first else {}) | {"next": following}
    return ToolResult(structured=structured, text=" ".join(["No message.", *first, following]))


def _details(outcome: WaitOutcome) -> list[tuple[Fields, str]]:
    """What is said where there is room, the more important first: fields, and the same in words."""
    skipped = [_skipped_item(*each) for each in outcome.skipped[-2:]]
    return [
        *(({"notes": note}, note) for note in outcome.notes[1:]),
        *(({"skipped": item}, f"Passed over: message {item['id']} ({item['reason']}).") for item in skipped),
    ]


def _bytes(result: ToolResult) -> int:
    """The size of the whole answer, as it goes over the wire."""
    answer = {"content": [{"type": "text", "text": result.text}], "structuredContent": result.structured}
    return len(json.dumps(answer, ensure_ascii=False).encode())


async def _message(context: ToolContext, outcome: WaitOutcome, request: WaitRequest, batch: FetchedBatch) -> ToolResult:
    found = batch.fetched(outcome.ids)
    topic = batch.topic(outcome.thread_root_id)
    fields: Fields = {"notice": STATEMENT} | _common(outcome)
    fields["messages"] = [_item(fetched, outcome) for fetched in found]
    if topic:
        fields["thread_topic"] = visible(topic)
    report = Report()
    report.cite(_opening(outcome, topic))
    if batch.lineage is not None:
        shown = {fetched.arrival.id for fetched in found}
        fields["thread"] = await _thread_before(context, batch.lineage, shown, report)
    for fetched in found:
        _show(report, fetched, outcome)
    _show_rest(report, fields, outcome)
    fields["next"] = _next(outcome, request, _again(outcome, request))
    report.say(fields["next"])
    return ToolResult(structured=fields, text=report.text())


def _common(outcome: WaitOutcome) -> Fields:
    return {
        "status": outcome.status,
        "after_id": format_reference(outcome.after_id),
        "thread_root_id": reference(outcome.thread_root_id),
        "reply_target_id": reference(outcome.reply_target_id),
        "messages": [],
        "transport": outcome.transport,
    }


def _item(fetched: Fetched, outcome: WaitOutcome) -> Fields:
    item = fetched.item()
    if fetched.arrival.id in outcome.already_returned:
        item["already_returned"] = True
    if fetched.arrival.id in outcome.redelivered:
        item["redelivered"] = True
    return item


def _opening(outcome: WaitOutcome, topic: str) -> str:
    count = len(outcome.ids)
    named = f" {quoted(topic)}" if topic else ""
    return f"{count} message{'s' if count != 1 else ''} in thread {outcome.thread_root_id}{named}:"


async def _thread_before(context: ToolContext, thread: Lineage, batch_ids: set[int], report: Report) -> list[Fields]:
    before = [message for message in thread.messages if message.id not in batch_ids]
    shown = newest_and_root(before, THREAD_SHOWN)
    bodies = await thread_bodies(context, shown, THREAD_BODY_BYTES)
    if shown:
        report.say("Before it:")
    for message, body in zip(shown, bodies, strict=True):
        show_thread_message(report, message, body)
    if shown:
        report.say("New:")
    return [thread_item(message, body) for message, body in zip(shown, bodies, strict=True)]


def _show(report: Report, fetched: Fetched, outcome: WaitOutcome) -> None:
    again = " (returned before)" if fetched.arrival.id in outcome.already_returned | outcome.redelivered else ""
    if fetched.message is None:
        sender = shown_address(fetched.arrival.from_)
        report.cite(f"{fetched.arrival.id}; from {sender}; the host does not show it now, get_message may later{again}")
        return
    report.cite(f"{headline(fetched.message)}; {shown_type(fetched.message.type)}{again}")
    show_body(report, fetched.body, fetched.message.size)


def _show_rest(report: Report, fields: Fields, outcome: WaitOutcome) -> None:
    if outcome.pending_count:
        fields["pending"] = [
            {"id": format_reference(arrival.id), "from": visible(arrival.from_.lower())}
            for arrival in outcome.pending[:SHOWN_PENDING]
        ]
        fields["pending_count"] = outcome.pending_count
        senders = dict.fromkeys(shown_address(arrival.from_) for arrival in outcome.pending[:SHOWN_PENDING])
        others = " and maybe others" if outcome.pending_count > SHOWN_PENDING else ""
        report.cite(f"More waiting: {outcome.pending_count}, from {', '.join(senders)}{others}.")
    if outcome.skipped:
        skipped = outcome.skipped[-SHOWN_SKIPPED:]
        fields["skipped"] = [_skipped_item(*each) for each in skipped]
        report.say(
            "Passed over: message " + ", ".join(f"{message_id} ({reason})" for message_id, reason in skipped) + "."
        )
    fields |= _counts(outcome)
    if outcome.notes:
        fields["notes"] = list(outcome.notes)
        report.say(f"Note: {' '.join(outcome.notes)}")


def _skipped_item(message_id: int, reason: str) -> Fields:
    return {"id": format_reference(message_id), "reason": reason}


def _counts(outcome: WaitOutcome) -> Fields:
    """What the position moved past and will not bring, and what is older than a wait that begins at "now"."""
    passed = sum(outcome.skipped_counts.get(reason, 0) for reason in (*FILTERED, "no_reply"))
    return ({"passed_over": passed} if passed else {}) | (
        {"older_unread": outcome.older_unread} if outcome.older_unread else {}
    )


def _next(outcome: WaitOutcome, request: WaitRequest, again: str) -> str:
    answer = "" if outcome.reply_target_id is None else f'To answer: reply with id "{outcome.reply_target_id}". '
    return f"{answer}{_older(outcome)}{_passed(outcome, request)}{again}"


def _older(outcome: WaitOutcome) -> str:
    if not outcome.older_unread:
        return ""
    more = " or more" if outcome.older_unread_more else ""
    verb = "does" if outcome.older_unread == 1 and not more else "do"
    return f"{outcome.older_unread}{more} older unread {verb} not come this way: list_messages with unread_only. "


def _passed(outcome: WaitOutcome, request: WaitRequest) -> str:
    """How to get what the position moved past: filtered messages by going back, ``no_reply`` ones from the list."""
    filtered = sum(outcome.skipped_counts.get(reason, 0) for reason in FILTERED)
    silent = outcome.skipped_counts.get("no_reply", 0)
    text = f"{silent} no_reply passed over: list_messages. " if silent else ""
    if not filtered:
        return text
    if request.subscription:
        return f"{text}{filtered} others passed over: list_messages. "
    back = format_reference(outcome.began_id)
    return f'{text}{filtered} others passed over: wait from after_id "{back}" without filter for those. '


def _again(outcome: WaitOutcome, request: WaitRequest | None) -> str:
    """Exactly what to call next; None for a request whose arguments are too long to be repeated."""
    after = f'Next: wait_for_message with after_id "{format_reference(outcome.after_id)}"'
    if request is None:
        return f"{after}, the other arguments as before."
    same = f', subscription "{request.subscription}"' if request.subscription else ""
    same += f', thread_of "{request.thread_of}"' if request.thread_of is not None else ""
    same += f', from "{request.from_}"' if request.from_ is not None else ""
    return f"{after}{same}."


WAIT_FOR_MESSAGE = define(
    _wait_for_message,
    "wait_for_message",
    "Wait for a message",
    "Wait until a message arrives and return it with its body. Call it in a loop, each time with the after_id of the "
    "last result: then nothing that qualifies is lost. Your own messages, reactions and no_reply messages do not. "
    "What from, thread_of and no_reply exclude does not come later; next says how to get it.",
    takes=WaitForMessage,
    gives=schemas.result(
        schemas.NOTICE
        | {
            "thread_topic": schemas.TEXT,
            "thread": schemas.ANYTHING,
            "pending": schemas.ANYTHING,
            "pending_count": schemas.WHOLE,
            "skipped": schemas.ANYTHING,
            "passed_over": schemas.WHOLE,
            "older_unread": schemas.WHOLE,
            "notes": schemas.TEXTS,
        },
        status=schemas.TEXT,
        after_id=schemas.TEXT,
        thread_root_id=schemas.TEXT_OR_NULL,
        reply_target_id=schemas.TEXT_OR_NULL,
        messages=schemas.array(
            schemas.message_item(
                {"already_returned": schemas.FLAG, "redelivered": schemas.FLAG, "unreadable": schemas.FLAG},
                body=schemas.TEXT_OR_NULL,
                body_truncated=schemas.FLAG,
            )
        ),
        transport=schemas.TEXT,
        next=schemas.TEXT,
    ),
    reads=True,
    holds=True,
)
