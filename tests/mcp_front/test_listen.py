"""``subscriptions/listen`` over real HTTP, with and without a feed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client import REGISTRY

from ledger.port import FeedReport, Member
from ledger.values import CallerKey, LedgerState, Seen, caller_key
from mcp_front import listen
from mcp_front.settings import Budgets
from tests.mcp_front.agents import until
from tests.mcp_front.fakes import ANSWER_S, Front, front, heads, request

ANN = "@ann@a.test"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "POLL_LOOK_S", 0.05)
    monkeypatch.setattr(listen, "GAP_S", 0.0)


class Stream:
    """An open stream of events."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def next(self) -> Any:
        """The next event, or None at the end."""
        async with asyncio.timeout(ANSWER_S):
            while line := await self.answer.content.readline():
                if line.startswith(b"data: "):
                    return json.loads(line[6:])
        return None


@contextlib.asynccontextmanager
async def listening(running: Front, key: str, **wanted: Any) -> AsyncIterator[Stream]:
    """Listen for what is wanted."""
    message = request("subscriptions/listen", {"notifications": wanted, "_meta": META}, id_="s1")
    headers = heads(key, MCP_Protocol_Version="2026-07-28", Mcp_Method="subscriptions/listen")
    async with running.http.post(running.endpoint, json=message, headers=headers) as answer:
        yield Stream(answer)


def arrived(running: Front) -> str:
    """Let a message arrive at the host."""
    running.host.control.deliver("@eve@b.test", [ANN], topic="hi", body="there")
    return ANN


def held() -> float:
    """What operators see of the budget of waits."""
    return REGISTRY.get_sample_value("fmsg_mcpd_waits_held") or 0.0


async def test_a_stream_counts_as_a_wait_while_it_is_open(running: Front) -> None:
    before = held()
    async with listening(running, running.key(ANN), resourceSubscriptions=["fmsg://inbox"]) as stream:
        await stream.next()
        assert held() == before + 1
        running.stop.set()
        while await stream.next() is not None:
            pass
    assert held() == before


async def test_the_first_event_says_what_will_come(running: Front) -> None:
    wanted = {"resourceSubscriptions": ["fmsg://inbox", "fmsg://message/1", "fmsg://inbox"], "toolsListChanged": True}
    async with listening(running, running.key(ANN), **wanted) as stream:
        event = await stream.next()
    assert event["method"] == "notifications/subscriptions/acknowledged"
    assert event["params"]["notifications"] == {
        "toolsListChanged": True,
        "resourceSubscriptions": ["fmsg://inbox"],
    }
    assert event["params"]["_meta"][SUBSCRIPTION] == "s1"


async def test_without_a_feed_the_host_is_asked(running: Front) -> None:
    async with listening(running, running.key(ANN), resourceSubscriptions=["fmsg://inbox"]) as stream:
        await stream.next()
        await _until_active(running)
        arrived(running)
        event = await stream.next()
    assert event["method"] == "notifications/resources/updated"
    assert event["params"] == {"uri": "fmsg://inbox", "_meta": {SUBSCRIPTION: "s1"}}


async def test_with_a_live_feed_the_doorbell_rings(running: Front) -> None:
    key = caller_key(running.api_url, ANN)
    await running.store.fleet.beat(Member(id="d1", name="d", since_s=0.0))
    await running.store.activations.report(key, FeedReport(state="live", daemon="d1", since_s=0.0))
    async with listening(running, running.key(ANN), resourceSubscriptions=["fmsg://inbox"]) as stream:
        await stream.next()
        await _until_active(running)
        seen = Seen(id=5, pid=None, root=5, from_="@eve@b.test")
        await running.store.ledger.append(key, [seen], "push")
        assert (await stream.next())["params"]["uri"] == "fmsg://inbox"


async def test_nothing_is_told_of_anothers_inbox(running: Front) -> None:
    async with (
        listening(running, running.key("@bob@a.test"), resourceSubscriptions=["fmsg://inbox"]) as bobs,
        listening(running, running.key(ANN), resourceSubscriptions=["fmsg://inbox"]) as anns,
    ):
        await bobs.next()
        await anns.next()
        await _until_active(running, count=2)
        arrived(running)
        assert (await anns.next())["method"] == "notifications/resources/updated"
        running.stop.set()
        assert "result" in await bobs.next()


async def test_the_stream_ends_with_a_result_when_the_process_does(running: Front) -> None:
    async with listening(running, running.key(ANN), toolsListChanged=True) as stream:
        await stream.next()
        running.stop.set()
        event = await stream.next()
        assert event["id"] == "s1"
        assert event["result"]["_meta"][SUBSCRIPTION] == "s1"
        assert await stream.next() is None


async def test_passing_trouble_does_not_end_the_stream(running: Front) -> None:
    async with listening(running, running.key(ANN), resourceSubscriptions=["fmsg://inbox"]) as stream:
        await stream.next()
        await _until_active(running)
        running.host.control.fail_next("list", times=3)
        arrived(running)
        assert (await stream.next())["method"] == "notifications/resources/updated"


async def test_a_key_that_is_refused_ends_the_stream(running: Front) -> None:
    key = running.key(ANN)
    async with listening(running, key, resourceSubscriptions=["fmsg://inbox"]) as stream:
        await stream.next()
        await _until_active(running)
        running.host.control.revoke_key(key)
        event = await stream.next()
        assert "not accepted" in event["error"]["message"]
        assert await stream.next() is None


async def test_a_revoked_key_ends_the_stream_though_a_live_feed_tells_of_nothing(
    running: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request of the stream goes to the host then, so nothing but a look of its own finds out."""
    monkeypatch.setattr(listen, "LIVE_LOOK_S", 0.05)
    await running.store.fleet.beat(Member(id="d1", name="d", since_s=0.0))
    report = FeedReport(state="live", daemon="d1", since_s=0.0)
    await running.store.activations.report(caller_key(running.api_url, ANN), report)
    key = running.key(ANN)
    async with listening(running, key, resourceSubscriptions=["fmsg://inbox"]) as stream:
        await stream.next()
        await _until_active(running)
        running.host.control.revoke_key(key)
        assert "not accepted" in (await stream.next())["error"]["message"]
        assert await stream.next() is None


async def test_a_revoked_key_ends_a_stream_that_asked_for_no_inbox(
    running: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it ever comes from the host: only a look of its own finds out that the key is refused."""
    monkeypatch.setattr(listen, "LIVE_LOOK_S", 0.05)
    key = running.key(ANN)
    async with listening(running, key, toolsListChanged=True) as stream:
        assert (await stream.next())["method"] == "notifications/subscriptions/acknowledged"
        running.host.control.revoke_key(key)
        assert "not accepted" in (await stream.next())["error"]["message"]
        assert await stream.next() is None


async def test_a_host_in_trouble_does_not_end_a_stream_that_asked_for_no_inbox(
    running: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "LIVE_LOOK_S", 0.05)
    async with listening(running, running.key(ANN), toolsListChanged=True) as stream:
        await stream.next()
        requests = running.host.control.core.faults.requests
        before = requests["token"]
        running.host.control.fail_next("token", times=3, status=503)
        await until(lambda: requests["token"] >= before + 5)
        running.stop.set()
        assert "result" in await stream.next()


async def test_a_ledger_restored_from_an_old_copy_that_grew_again_is_a_change(running: Front) -> None:
    """The same life and the same length as before, and another message at its end."""
    key = caller_key(running.api_url, ANN)
    await running.store.fleet.beat(Member(id="d1", name="d", since_s=0.0))
    await running.store.activations.report(key, FeedReport(state="live", daemon="d1", since_s=0.0))
    async with listening(running, running.key(ANN), resourceSubscriptions=["fmsg://inbox"]) as stream:
        await stream.next()
        await _until_active(running)
        await running.store.ledger.append(key, [Seen(id=5, pid=None, root=5, from_="@eve@b.test")], "push")
        assert (await stream.next())["params"]["uri"] == "fmsg://inbox"
        ledger = running.store.ledger
        state = ledger.state

        async def other(caller: CallerKey) -> LedgerState | None:
            now = await state(caller)
            return None if now is None else msgspec.structs.replace(now, last=now.last.following(0))

        ledger.state = other  # type: ignore[method-assign]
        running.store.notifications.notify(key)
        assert (await stream.next())["params"]["uri"] == "fmsg://inbox"


async def test_streams_count_as_waits() -> None:
    async with front(budgets=Budgets(max_waits_per_caller=1)) as running:
        key = running.key(ANN)
        async with listening(running, key, toolsListChanged=True) as stream:
            await stream.next()
            async with listening(running, key, toolsListChanged=True) as second:
                assert second.answer.content_type == "application/json"
                told = json.loads(await second.answer.text())
            assert "FMSG_MCP_MAX_WAITS_PER_CALLER" in told["error"]["message"]


async def test_only_a_client_that_accepts_streams_can_listen(running: Front) -> None:
    message = request("subscriptions/listen", {"notifications": {}, "_meta": META})
    headers = heads(running.key(), MCP_Protocol_Version="2026-07-28", Mcp_Method="subscriptions/listen")
    async with running.http.post(
        running.endpoint, json=message, headers={**headers, "Accept": "application/json"}
    ) as answer:
        assert answer.status == 406


async def _until_active(running: Front, *, count: int = 1) -> None:
    """Wait until so many callers have a ledger."""
    async with asyncio.timeout(ANSWER_S):
        while True:
            active = await running.store.activations.active()
            states = [await running.store.ledger.state(key) for key in active]
            if len([state for state in states if state is not None]) >= count:
                return
            await asyncio.sleep(0.01)
