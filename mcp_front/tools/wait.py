"""``wait_for_message``: the arguments of a wait, and its outcome as a result an agent can go on from."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from fmsg.reference import format_reference, parse_position, parse_reference
from mcp_front import schemas
from mcp_front.framing import STATEMENT, Report, quoted, visible
from mcp_front.lineage import Lineage
from mcp_front.render import Fields, headline, reference, shown_address, shown_type
from mcp_front.tools.arguments import Arguments, Filled, Reference
from mcp_front.tools.batch import Batch, Fetched
from mcp_front.tools.context import ToolContext
from mcp_front.tools.names import resolve
from mcp_front.tools.read import newest_and_root, show_body, show_thread_message, thread_bodies, thread_item
from mcp_front.tools.tool import ToolResult, define
from mcp_front.waiting.request import WaitOutcome, WaitRequest

SETTLE_S = 3
"""A person's next line of the same thought usually follows within it."""
MOST_SETTLE_S = 60
"""Longer is another conversation, not the same burst."""
MOST_TIMEOUT_S = 86_400
"""Accepted so that no caller fails over it; a single call is capped far below."""
THREAD_SHOWN = 20
"""Messages of the thread before the batch that include_thread brings."""
THREAD_BODY_BYTES = 4_096
"""Of each of them."""
SHOWN_PENDING = 5
SHOWN_SKIPPED = 10
"""Enough to see what happens; get_message and list_messages show the rest."""
TIMEOUT_BYTES = 560
"""A timeout is what an agent meets most often, so all of it stays below 600 bytes; details are dropped for that."""


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
        Annotated[int, Meta(ge=0, le=MOST_TIMEOUT_S, description="Default 50; the server caps it")] | None
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
    batch = Batch(context.caller)
    outcome = await context.waiting.wait(
        context.caller,
        request,
        progress=_progress(context, request.timeout_s),
        drain=context.drain,
        fit=batch.fit,
    )
    if outcome.status == "timeout":
        return _timeout(outcome, request)
    found = batch.fetched(outcome.ids)
    thread = await batch.thread(outcome.ids[-1].id) if arguments.include_thread else None
    topic = await batch.topic(outcome.thread_root_id) if outcome.thread_root_id else ""
    return await _message(context, outcome, request, found, topic, thread)


def _request(context: ToolContext, arguments: WaitForMessage) -> WaitRequest:
    settings = context.settings
    after, thread, sender = arguments.after_id, arguments.thread_of, arguments.from_
    timeout_s = settings.wait_default_s if arguments.timeout_seconds is None else float(arguments.timeout_seconds)
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


def _timeout(outcome: WaitOutcome, request: WaitRequest) -> ToolResult:
    result = _nothing(outcome, _again(outcome, request))
    if _bytes(result) > TIMEOUT_BYTES:
        result = _nothing(outcome, _again(outcome, None))
    for details in _details(outcome):
        fuller = ToolResult(
            structured=result.structured | _merged(result.structured, details),
            text=f"{result.text}\n{_spoken(details)}",
        )
        if _bytes(fuller) <= TIMEOUT_BYTES:
            result = fuller
    return result


def _nothing(outcome: WaitOutcome, following: str) -> ToolResult:
    return ToolResult(structured=_common(outcome) | {"next": following}, text=f"No message. {following}")


def _details(outcome: WaitOutcome) -> list[Fields]:
    notes = [{"notes": [note]} for note in outcome.notes]
    return [*notes, *({"skipped": [_skipped_item(*skipped)]} for skipped in outcome.skipped[-2:])]


def _merged(fields: Fields, details: Fields) -> Fields:
    return {name: [*fields.get(name, ()), *items] for name, items in details.items()}


def _spoken(details: Fields) -> str:
    if "notes" in details:
        return f"Note: {details['notes'][0]}."
    return f"Passed over: {details['skipped'][0]['id']} ({details['skipped'][0]['reason']})."


def _bytes(result: ToolResult) -> int:
    """The size of the whole answer, as it goes over the wire."""
    answer = {"content": [{"type": "text", "text": result.text}], "structuredContent": result.structured}
    return len(json.dumps(answer, ensure_ascii=False).encode())


async def _message(
    context: ToolContext,
    outcome: WaitOutcome,
    request: WaitRequest,
    found: Sequence[Fetched],
    topic: str,
    thread: Lineage | None,
) -> ToolResult:
    fields: Fields = {"notice": STATEMENT} | _common(outcome)
    fields["messages"] = [_item(fetched, outcome) for fetched in found]
    if topic:
        fields["thread_topic"] = visible(topic)
    report = Report()
    report.cite(_opening(outcome, topic))
    if thread is not None:
        fields["thread"] = await _thread_before(context, thread, {fetched.arrival.id for fetched in found}, report)
    for fetched in found:
        _show(report, fetched, outcome)
    _show_rest(report, fields, outcome)
    fields["next"] = _next(outcome, request)
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
        report.say("Passed over: " + ", ".join(f"{message_id} ({reason})" for message_id, reason in skipped) + ".")
    if outcome.notes:
        fields["notes"] = list(outcome.notes)
        report.say(f"Note: {'; '.join(outcome.notes)}.")


def _skipped_item(message_id: int, reason: str) -> Fields:
    return {"id": format_reference(message_id), "reason": reason}


def _next(outcome: WaitOutcome, request: WaitRequest) -> str:
    again = _again(outcome, request)
    if outcome.reply_target_id is None:
        return again
    return f'To answer: reply with id "{outcome.reply_target_id}". {again}'


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
    "last result: then nothing is lost in between. Your own messages, reactions and no_reply messages do not count.",
    takes=WaitForMessage,
    gives=schemas.result(
        schemas.NOTICE
        | {
            "thread_topic": schemas.TEXT,
            "thread": schemas.ANYTHING,
            "pending": schemas.ANYTHING,
            "pending_count": schemas.WHOLE,
            "skipped": schemas.ANYTHING,
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
