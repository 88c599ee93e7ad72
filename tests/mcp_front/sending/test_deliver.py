"""All of a message or nothing of it, whatever breaks on the way (FMSG-007, Atomic send)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from fmsg.errors import FmsgError, HostUnreachable
from fmsg.http import Deadlines, HostHttp
from fmsg.webapi import WebApi
from ledger.port import DeferredTask, LedgerUnavailable
from ledger.seal import SealKeys
from ledger.store import MemoryStore, RedisStore
from ledger.values import caller_key
from mcp_front.failures import ToolFailure
from mcp_front.sending.compose import DEFAULT_TYPE, Outgoing
from mcp_front.sending.deliver import DRAFT_LIFE_S, LOOK_DELAYS_S, Delivered, Post
from mcp_front.sending.uploads import Upload
from sandbox.control import Control
from sandbox.host import SandboxHost, serve
from tests.fake_redis import FreezingTopology
from tests.key_tokens import KeyTokens
from tests.mcp_front.agents import until

ANN = "@ann@here.test"
CAT = "@cat@here.test"


class Desk:
    """A post office to try: one host, one sender, and what is left behind."""

    def __init__(self, control: Control, api: WebApi, store: MemoryStore, post: Post, now_s: list[float]) -> None:
        self.control = control
        self.api = api
        self.store = store
        self.post = post
        self._now_s = now_s

    async def drafts(self) -> list[int]:
        """Drafts left on the host."""
        return [message.id for message in (await self.api.list_sent(limit=100)).messages if message.is_draft]

    async def sent(self) -> list[int]:
        """Messages that got out."""
        return [message.id for message in (await self.api.list_sent(limit=100)).messages if not message.is_draft]

    async def left(self) -> list[tuple[str, int]]:
        """What is left for later."""
        self._now_s[0] += DRAFT_LIFE_S
        return [(task.kind, task.message_id) for task in await self.store.deferred.due(100)]


def outgoing(*, body: str, **more: Any) -> Outgoing:
    """A message of Ann's to Cat."""
    told: dict[str, Any] = {
        "topic": "t", "type": DEFAULT_TYPE, "important": False, "no_reply": False, "parent": None, "parent_id": None,
        "uploads": (), "redactions": 0, "redacted": frozenset(),
    }  # fmt: skip
    return Outgoing(from_=ANN, to=(CAT,), body=body, size_bytes=len(body.encode()), **told | more)


def message(*files: str, **more: Any) -> Outgoing:
    uploads = tuple(Upload(name, "text/plain", b"content") for name in files)
    return outgoing(body="hello", uploads=uploads, **more)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    host = SandboxHost("here.test")
    deadlines = Deadlines(answer_s=0.5)
    now_s = [1000.0]
    store = MemoryStore(clock=lambda: now_s[0])
    async with serve(host) as url, HostHttp(url, deadlines=deadlines) as http:
        host.control.create_address(CAT)

        async def no_time(_delay_s: float) -> None:
            await asyncio.sleep(0)

        api = WebApi(http, KeyTokens(http, host.control.create_key(ANN), sleep=no_time, retry_for_s=0))
        post = Post(
            api=api, deferred=store.deferred, caller=caller_key(url, ANN), clock=lambda: now_s[0], sleep=no_time
        )
        yield Desk(host.control, api, store, post, now_s)


async def test_draft_attachments_send(desk: Desk) -> None:
    delivered = await desk.post.deliver(message("a.txt", "b.txt"))
    assert [info.filename for info in delivered.attachments] == ["a.txt", "b.txt"]
    assert await desk.sent() == [delivered.id]
    assert await desk.drafts() == []
    assert await desk.left() == []


@pytest.mark.parametrize("route", ["attach", "send"])
@pytest.mark.parametrize("status", [400, 403, 404, 409, 413, 429, 500, 503])
async def test_a_refused_step_leaves_nothing(desk: Desk, route: str, status: int) -> None:
    desk.control.fail_next(route, status=status, text="no")
    with pytest.raises(FmsgError, match="no"):
        await desk.post.deliver(message("a.txt"))
    assert await desk.drafts() == []
    assert await desk.sent() == []
    assert await desk.left() == []


async def test_a_draft_that_cannot_be_deleted_now_is_left_to_a_worker(desk: Desk) -> None:
    desk.control.fail_next("attach", status=413, text="too large")
    desk.control.fail_next("delete", status=503)
    with pytest.raises(FmsgError, match="too large"):
        await desk.post.deliver(message("a.txt"))
    assert await desk.left() == [("delete_draft", draft_id) for draft_id in await desk.drafts()]
    assert len(await desk.drafts()) == 1


async def test_a_draft_of_a_process_that_dies_is_known_to_the_workers(desk: Desk) -> None:
    desk.control.hang_next("attach")
    sending = asyncio.create_task(desk.post.deliver(message("a.txt")))
    await until(lambda: desk.control.core.faults.requests["attach"] > 0)
    assert await desk.left() == [("delete_draft", draft_id) for draft_id in await desk.drafts()]
    sending.cancel()
    desk.control.release()
    with pytest.raises(asyncio.CancelledError):
        await sending


async def test_a_lost_answer_to_send_is_a_success_where_the_message_is_out(desk: Desk) -> None:
    desk.control.lose_answers("send")
    delivered = await desk.post.deliver(message())
    assert await desk.sent() == [delivered.id]
    assert (await desk.api.message(delivered.id)).time == delivered.time_s
    assert await desk.left() == []


async def test_a_cut_connection_before_the_send_was_done_is_a_failure_that_leaves_nothing(desk: Desk) -> None:
    desk.control.fail_next("send", cut=True)
    with pytest.raises(HostUnreachable):
        await desk.post.deliver(message())
    assert await desk.drafts() == []
    assert await desk.sent() == []


async def test_an_outcome_that_cannot_be_learned_is_told_with_the_id_and_left_to_a_worker(desk: Desk) -> None:
    desk.control.lose_answers("send")
    desk.control.fail_next("get", times=1 + len(LOOK_DELAYS_S), status=503)
    with pytest.raises(ToolFailure) as failure:
        await desk.post.deliver(message())
    sent = await desk.sent()
    assert failure.value.kind == "outcome_unknown"
    assert failure.value.fields["id"] == str(sent[0])
    assert "get_message" in failure.value.next_step
    assert ("settle_send", sent[0]) in await desk.left()
    assert len(sent) == 1, "it is never sent again from here"


async def test_a_host_that_comes_back_in_time_still_tells_the_outcome(desk: Desk) -> None:
    desk.control.lose_answers("send")
    desk.control.fail_next("get", times=len(LOOK_DELAYS_S), status=503)
    delivered = await desk.post.deliver(message())
    assert await desk.sent() == [delivered.id]


async def test_the_draft_of_an_unanswered_creation_is_found_and_deleted(desk: Desk) -> None:
    other = await desk.api.create_draft(message().draft())
    await desk.api.delete_draft(other)
    desk.control.lose_answers("create")
    with pytest.raises(HostUnreachable):
        await desk.post.deliver(message())
    assert await desk.drafts() == []


async def test_other_drafts_of_the_caller_stay(desk: Desk) -> None:
    other = await desk.api.create_draft(msgspec.structs.replace(message().draft(), topic="another"))
    desk.control.lose_answers("create")
    with pytest.raises(HostUnreachable):
        await desk.post.deliver(message())
    assert await desk.drafts() == [other]


@pytest.mark.parametrize("route", ["create", "attach"])
async def test_a_call_cancelled_before_the_send_leaves_nothing(desk: Desk, route: str) -> None:
    desk.control.delay(0.05, route=route)
    sending = asyncio.create_task(desk.post.deliver(message("a.txt")))
    await until(lambda: desk.control.core.faults.requests[route] > 0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert await desk.drafts() == []
    assert await desk.sent() == []
    assert await desk.left() == []


async def test_a_call_cancelled_during_the_send_ends_with_a_whole_message(desk: Desk) -> None:
    desk.control.delay(0.05, route="send")
    noted: list[Delivered] = []

    class Steps:
        async def drafted(self, draft_id: int) -> None: ...
        async def sending(self) -> None: ...

        async def sent(self, delivered: Delivered) -> None:
            noted.append(delivered)

    sending = asyncio.create_task(desk.post.deliver(message(), Steps()))
    await until(lambda: desk.control.core.faults.requests["send"] > 0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert await desk.sent() == [noted[0].id]
    assert await desk.drafts() == []


async def test_a_store_that_is_away_does_not_hold_up_a_message(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(task: DeferredTask) -> None:
        raise LedgerUnavailable

    monkeypatch.setattr(desk.store.deferred, "add", away)
    monkeypatch.setattr(desk.store.deferred, "done", away)
    delivered = await desk.post.deliver(message())
    assert await desk.sent() == [delivered.id]


async def test_a_store_that_hangs_does_not_hold_up_a_message(desk: Desk) -> None:
    """Redis is frozen and answers nothing: tasks are given up after a moment, the message is out all the same."""
    topology = FreezingTopology()
    async with RedisStore(topology, seal=SealKeys.parse(SealKeys.generate())) as store:
        topology.frozen = True
        async with asyncio.timeout(60.0):
            delivered = await msgspec.structs.replace(desk.post, deferred=store.deferred).deliver(message("a.txt"))
        topology.frozen = False
    assert await desk.sent() == [delivered.id]


async def test_settling_finds_a_sent_message_and_withdraws_an_unsent_one(desk: Desk) -> None:
    draft_id = await desk.api.create_draft(message().draft())
    assert await desk.post.settle(draft_id) is None
    assert await desk.drafts() == []
    assert await desk.post.settle(draft_id) is None
    sent_id = await desk.api.create_draft(message().draft())
    await desk.api.send(sent_id)
    settled = await desk.post.settle(sent_id)
    assert settled is not None
    assert settled.id == sent_id


async def test_a_send_that_overtakes_the_withdrawal_is_seen(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    draft_id = await desk.api.create_draft(message().draft())
    delete = desk.api.delete_draft

    async def overtaken(message_id: int) -> None:
        await desk.api.send(message_id)
        await delete(message_id)

    monkeypatch.setattr(desk.api, "delete_draft", overtaken)
    settled = await desk.post.settle(draft_id)
    assert settled is not None
    assert settled.time is not None
