"""``subscriptions/listen`` (MCP 2026-07-28): tells a client that its own inbox has changed, and nothing more.

An event says "look again", so nothing is stored or replayed: several arrivals may be one event, and a client that was
away lists its inbox. Notifications are hints; the ledger is read now and then all the same, and the host's list
where no live feed fills the ledger.
"""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY, ResourceUpdated, event_to_notification

from fmsg.errors import Transient
from ledger.port import LedgerError
from ledger.values import Head
from mcp_front.drain import Drain
from mcp_front.limits import HeldCalls
from mcp_front.server import Ctx, Requests
from mcp_front.tools.context import ToolContext
from mcp_front.waiting.caller_state import Participant
from telemetry import metrics

INBOX_URI = "fmsg://inbox"
"""The caller's own inbox; the only resource that changes."""
LIVE_LOOK_S = 30.0
"""Between looks at the ledger while a live feed fills it: how late an event can be whose notification was lost. Also
how often the key is confirmed, which lasts a minute or more."""
POLL_LOOK_S = 5.0
"""Between looks at the host's list while no feed is live."""
GAP_S = 0.25
"""Between two events: a burst of arrivals is one or two of them."""


class Inboxes:
    """The handler. One call is one stream; it ends with the client, with the process, or when the key is refused."""

    def __init__(self, requests: Requests, held_calls: HeldCalls, drain: Drain) -> None:
        self._requests = requests
        self._held_calls = held_calls
        self._drain = drain

    async def __call__(
        self, ctx: Ctx, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve one stream. Raises `OverBudget`, `MCPError`, or what the host says of the key."""
        if ctx.request_id is None:
            raise MCPError(types.INVALID_REQUEST, "subscriptions/listen needs a request id.")
        context = await self._requests.context(ctx, None)
        self._held_calls.take(context.caller.key)
        metrics.WAITS_HELD.inc()
        try:
            stream = _Stream(ctx, context, _honoured(params.notifications))
            await stream.acknowledge()
            await stream.run(self._drain)
        finally:
            metrics.WAITS_HELD.dec()
            self._held_calls.give_back(context.caller.key)
        return types.SubscriptionsListenResult(_meta=stream.meta)


def _honoured(asked: types.SubscriptionFilter) -> types.SubscriptionFilter:
    """What will be delivered of what was asked for. Lists do not change while a process runs."""
    return types.SubscriptionFilter(
        tools_list_changed=asked.tools_list_changed or None,
        prompts_list_changed=asked.prompts_list_changed or None,
        resources_list_changed=asked.resources_list_changed or None,
        resource_subscriptions=[uri for uri in asked.resource_subscriptions or () if uri == INBOX_URI][:1] or None,
    )


class _Stream:
    def __init__(self, ctx: Ctx, context: ToolContext, honoured: types.SubscriptionFilter) -> None:
        self.meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
        self._ctx = ctx
        self._caller = context.caller
        self._waiting = context.waiting
        self._wake = asyncio.Event()
        self._honoured = honoured
        self._seen: Head | None = None

    async def acknowledge(self) -> None:
        """The first frame of the stream says what it will carry."""
        params = types.SubscriptionsAcknowledgedNotificationParams(notifications=self._honoured, _meta=self.meta)
        await self._send(types.SubscriptionsAcknowledgedNotification(params=params))

    async def run(self, drain: Drain) -> None:
        """Tell of changes until the process is about to end."""
        inbox = self._waiting.inbox(self._caller, self._wake.set)
        end_drain = drain.listen(self._wake.set)
        try:
            while not drain.is_set():
                self._wake.clear()
                again_s = await (self._look(inbox) if self._honoured.resource_subscriptions else self._confirm())
                try:
                    async with asyncio.timeout(again_s):
                        await self._wake.wait()
                except TimeoutError:
                    continue
                if not drain.is_set():
                    await asyncio.sleep(GAP_S)
        finally:
            end_drain()
            inbox.release()

    async def _confirm(self) -> float:
        """Make sure of the key of a stream that tells of nothing of the host's; returns when to do it again."""
        try:
            await self._caller.confirm(within_s=LIVE_LOOK_S * 2)
        except Transient:
            return POLL_LOOK_S
        return LIVE_LOOK_S

    async def _look(self, inbox: Participant) -> float:
        """See whether the inbox has changed, and tell; returns when to look again."""
        try:
            # At each look, not only before an event: a stream of a revoked key must end, and keep no feed alive.
            await self._caller.confirm(within_s=LIVE_LOOK_S * 2)
            live, head = await inbox.look()
            if self._seen is not None and head != self._seen:
                await self._send(event_to_notification(ResourceUpdated(INBOX_URI), self.meta))
            self._seen = head or self._seen
        except (LedgerError, Transient):
            # The stream outlasts trouble, and what is missed meanwhile shows at the next look.
            return POLL_LOOK_S
        return LIVE_LOOK_S if live else POLL_LOOK_S

    async def _send(self, notification: types.ServerNotification) -> None:
        await self._ctx.session.send_notification(notification, related_request_id=self._ctx.request_id)
