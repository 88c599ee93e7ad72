"""``wait_subscriptions``: the named positions that the server keeps for a caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from fmsg.errors import BadInput
from fmsg.reference import format_reference
from mcp_front import schemas
from mcp_front.framing import STATEMENT, Report
from mcp_front.render import Fields, reference, rfc3339, shown_address
from mcp_front.tools.arguments import Arguments
from mcp_front.tools.context import ToolContext
from mcp_front.tools.tool import ToolResult, define
from mcp_front.waiting.subscribed import Summary


class WaitSubscriptions(Arguments, frozen=True, kw_only=True):
    """What to do, and with which subscription."""

    action: Literal["list", "delete"]
    name: Annotated[str, Meta(min_length=1, description="Subscription to delete")] | None = None


async def _wait_subscriptions(context: ToolContext, arguments: WaitSubscriptions) -> ToolResult:
    await context.caller.confirm()
    if arguments.action == "list":
        return _listed(await context.waiting.subscriptions(context.caller.key))
    if arguments.name is None:
        raise BadInput("name: is missing. It is: the subscription to delete; action list names them.")
    name = arguments.name
    deleted = await context.waiting.delete_subscription(context.caller.key, name)
    what = "Deleted" if deleted else "There was no"
    return ToolResult(structured={"deleted": deleted, "subscriptions": []}, text=f"{what} subscription {name}.")


def _listed(found: Sequence[Summary]) -> ToolResult:
    report = Report()
    items: list[Fields] = []
    for summary in found:
        if not summary.readable:
            items.append({"name": summary.name, "unreadable": True})
            report.cite(f"{summary.name}: what is stored of it cannot be read; delete it and make it anew")
            continue
        items.append(
            {
                "name": summary.name,
                "after_id": format_reference(summary.after_id),
                "thread_root_id": reference(summary.thread_root),
                "from": summary.from_,
                "unacknowledged": summary.outstanding,
                "used_at": rfc3339(summary.used_s),
            }
        )
        filters = f", thread {summary.thread_root}" if summary.thread_root else ""
        filters += f", from {shown_address(summary.from_)}" if summary.from_ else ""
        report.cite(
            f"{summary.name}: after_id {summary.after_id}{filters}; not acknowledged: {summary.outstanding}; "
            f"last used {rfc3339(summary.used_s)}"
        )
    if not items:
        report.say("You have no subscriptions. wait_for_message with a subscription makes one.")
    fields: Fields = {"deleted": False, "subscriptions": items}
    return ToolResult(structured={"notice": STATEMENT, **fields} if items else fields, text=report.text())


WAIT_SUBSCRIPTIONS = define(
    _wait_subscriptions,
    "wait_subscriptions",
    "Manage subscriptions",
    "List your wait_for_message subscriptions, or delete one: its position is forgotten, its messages stay.",
    takes=WaitSubscriptions,
    gives=schemas.result(schemas.NOTICE, deleted=schemas.FLAG, subscriptions=schemas.ANYTHING),
    reads=False,
    repeatable=True,
    open_world=False,
)
