"""FMSG-007's minimum interoperability test in seven steps. Each says what was checked and how long it took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import msgspec

from ops.agent import Agent

WAIT_S = 20
"""How long a step waits for a message. A working deployment needs far less."""
FEED_S = 5.0
"""How long an event socket is waited for. Without one the steps hold too, by polling."""


class StepFailed(Exception):
    """A step did not show what it should. The text says what was expected and what came."""


class InteropStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step done: its number and title as in the standard, what was checked, seconds taken."""

    number: int
    title: str
    checked: str
    took_s: float


def expect(condition: object, what: str, got: object) -> None:
    """Raise `StepFailed` unless the condition holds."""
    if not condition:
        raise StepFailed(f"expected {what}, got {got!r}")


async def _pushed_to(agent: Agent) -> None:
    """Let the agent's event socket open, so that a push wakes it. Without a daemon there is none."""
    deadline = time.monotonic() + FEED_S
    while time.monotonic() < deadline:
        looked = await agent.call("wait_for_message", timeout_seconds=0)
        if looked["transport"] == "websocket":
            return
        await asyncio.sleep(0.1)


class Interop:
    """The test over two agents. ``mcp_url`` is None on stdio, which has no bearer key to check."""

    def __init__(self, *, alice: Agent, bob: Agent, addresses: tuple[str, str], mcp_url: str | None) -> None:
        self.alice = alice
        self.bob = bob
        self.alice_address, self.bob_address = addresses
        self.mcp_url = mcp_url
        self.reply_to = ""
        self.sent: dict[str, Any] = {}
        self.reply: dict[str, Any] = {}
        self.push_to_result_s: float | None = None

    async def run(self) -> AsyncIterator[InteropStep]:
        """The steps, in order. Raises `StepFailed` or what a tool raises."""
        steps: list[tuple[str, Callable[[], Awaitable[str]]]] = [
            ("A request without a key is refused", self._refuses_without_key),
            ("whoami reports the address", self._whoami),
            ("A message reaches the other host", self._send),
            ("Its reply is returned by wait_for_message", self._reply_wakes),
            ("get_thread shows both messages", self._thread),
            ("A reaction succeeds", self._react),
            ("delivery_status says delivered", self._delivered),
        ]
        for number, (title, act) in enumerate(steps, start=1):
            began = time.perf_counter()
            checked = await act()
            yield InteropStep(number=number, title=title, checked=checked, took_s=time.perf_counter() - began)

    async def _refuses_without_key(self) -> str:
        if self.mcp_url is None:
            return "not applicable to stdio: one caller per process, no bearer key"
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        async with aiohttp.ClientSession() as session, session.post(self.mcp_url, json=body) as answer:
            challenge = answer.headers.get("WWW-Authenticate", "")
            expect(answer.status == 401, "status 401", answer.status)
            expect(challenge.startswith("Bearer"), "a Bearer challenge", challenge)
            return f"401 with WWW-Authenticate: {challenge}"

    async def _whoami(self) -> str:
        for agent, address in ((self.alice, self.alice_address), (self.bob, self.bob_address)):
            who = await agent.call("whoami")
            expect(who["address"] == address, address, who["address"])
        return f"{self.alice_address} and {self.bob_address}"

    async def _send(self) -> str:
        await asyncio.gather(_pushed_to(self.alice), _pushed_to(self.bob))
        waiting = asyncio.create_task(
            self.bob.call("wait_for_message", timeout_seconds=WAIT_S, settle_seconds=0)
        )  # awaited below
        await asyncio.sleep(0.5)  # let the wait begin, so that the push wakes it
        self.sent = await self.alice.call(
            "send_message", to=[self.bob_address], topic="Lunch?", body="Thursday at **noon**?"
        )
        expect(self.sent["to"] == [self.bob_address], self.bob_address, self.sent["to"])
        got = await waiting
        expect(got["status"] == "message", "status message", got["status"])
        message = got["messages"][0]
        expect(message["from"] == self.alice_address, self.alice_address, message["from"])
        self.reply_to = got["reply_target_id"]
        return f"{self.alice_address} sent {self.sent['id']}; {self.bob_address} received it as {message['id']}"

    async def _reply_wakes(self) -> str:
        waiting = asyncio.create_task(
            self.alice.call("wait_for_message", after_id=self.sent["id"], timeout_seconds=WAIT_S, settle_seconds=0)
        )  # awaited below
        await asyncio.sleep(0.5)  # let the wait begin, so that the push wakes it
        await self.bob.call("reply", id=self.reply_to, body="Noon it is.")
        pushed = time.perf_counter()
        got = await waiting
        self.push_to_result_s = time.perf_counter() - pushed
        expect(got["status"] == "message", "status message", got["status"])
        self.reply = got["messages"][-1]
        expect(got["reply_target_id"] == self.reply["id"], "reply_target_id of the reply", got["reply_target_id"])
        expect(self.reply["from"] == self.bob_address, self.bob_address, self.reply["from"])
        return (
            f"reply {self.reply['id']} came over {got['transport']}, "
            f"{max(0.0, self.push_to_result_s) * 1000:.0f} ms after the sender's call had returned"
        )

    async def _thread(self) -> str:
        thread = await self.alice.call("get_thread", id=self.reply["id"])
        ids = [message["id"] for message in thread["messages"]]
        expect(ids == [self.sent["id"], self.reply["id"]], "both messages, root first", ids)
        expect(thread["participants"] == [self.bob_address], self.bob_address, thread["participants"])
        expect(thread["complete"] is True, "a complete thread", thread["complete"])
        return f"messages {', '.join(ids)}; sole other participant {thread['participants'][0]}"

    async def _react(self) -> str:
        done = await self.alice.call("react", id=self.reply["id"], emoji="👍")
        expect(done["reaction_id"] is not None, "a reaction id", done["reaction_id"])
        return f"👍 on {self.reply['id']}"

    async def _delivered(self) -> str:
        deadline = time.monotonic() + WAIT_S
        while True:
            status = await self.alice.call("delivery_status", id=self.sent["id"])
            found = [recipient["status"] for recipient in status["recipients"]]
            if found == ["delivered"]:
                return f"{status['recipients'][0]['addr']}: delivered"
            expect(time.monotonic() < deadline, "delivered", found)
            await asyncio.sleep(0.1)
