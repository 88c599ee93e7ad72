"""The rules by example against real processes: ``python -m tests.chaos.waits_live`` (`make waits`).

Every case of ``waits.json`` runs at the same time, each with a caller and a block of message ids of its own, on one
sandbox host, daemon, front and Redis. Idle gaps are left out: a pause in which no call is held is at most `GAP_S` long,
which is longer than any settle window of the cases.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import aiohttp

from ledger.embedded import EmbeddedRedis
from ledger.seal import SealKeys
from ops.agent import Agent, over_http
from ops.processes import Child
from tests.sandbox_control import SandboxControl

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "mcp_front" / "waiting" / "waits.json").read_text()
)["scenarios"]

DOMAIN = "waits.test"
BLOCK = 1000
"""Ids per case: above any id that a case names."""
GAP_S = 4.0
SLACK_S = 1.5
"""How much later than said an answer may come on a busy machine; sooner than said is never right."""
EARLY_S = 0.3
"""Clocks of host, Redis and this process are read at slightly different moments."""


class Host:
    """The sandbox host, as the events of the cases happen on it."""

    def __init__(self, url: str, control: SandboxControl) -> None:
        self._url = url
        self._control = control
        self._ids = asyncio.Lock()
        self._tokens: dict[str, str] = {}

    async def token(self, address: str) -> str:
        """An access token of an address, made where unknown."""
        if address not in self._tokens:
            key = await self._control.make_person(address)
            answer = await self._request("POST", "/fmsg/token", key)
            self._tokens[address] = str(answer["access_token"])
        return self._tokens[address]

    async def arrives(self, case: Case, fields: dict[str, Any]) -> None:
        """A message becomes available to the case's caller."""
        if fields.get("added_by_batch"):
            await self._added(case, fields)
        elif "reaction" in fields:
            await self._reacted(case, fields)
        else:
            async with self._ids:
                await self._control.call("set_next_id", next_id=case.id(fields["id"]))
                await self._control.call(
                    "deliver",
                    **{"from": case.address(fields["from"])},
                    to=[case.address(to) for to in fields.get("to", ["@me@here.test"])],
                    pid=case.id(fields["pid"]) if fields["pid"] else None,
                    no_reply=fields.get("no_reply", False),
                    body="x",
                )

    async def sends(self, case: Case, fields: dict[str, Any]) -> None:
        """The caller sends a message."""
        await self.token(case.address(fields["to"][0]))
        await self._send(case, fields, to=[case.address(to) for to in fields["to"]])

    async def _added(self, case: Case, fields: dict[str, Any]) -> None:
        sender, third = case.address(fields["from"]), case.address("@third@there.test")
        await self.token(third)
        message_id = await self._send(case, fields, to=[third])
        await self._request(
            "POST", f"/fmsg/{message_id}/add-to", await self.token(sender), {"add_to": [case.address("@me@here.test")]}
        )

    async def _reacted(self, case: Case, fields: dict[str, Any]) -> None:
        token = await self.token(case.address(fields["from"]))
        async with self._ids:
            await self._control.call("set_next_id", next_id=case.id(fields["id"]))
            await self._request("POST", f"/fmsg/{case.id(fields['pid'])}/react", token, {"emoji": fields["reaction"]})

    async def _send(self, case: Case, fields: dict[str, Any], *, to: list[str]) -> int:
        sender = case.address(fields["from"])
        token = await self.token(sender)
        draft = {"version": 1, "from": sender, "to": to, "type": "text/plain", "size": 1, "data": "x"}
        async with self._ids:
            await self._control.call("set_next_id", next_id=case.id(fields["id"]))
            message_id = int((await self._request("POST", "/fmsg", token, draft))["id"])
        await self._request("POST", f"/fmsg/{message_id}/send", token)
        return message_id

    async def _request(self, method: str, path: str, bearer: str, body: Any = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {bearer}"}
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"{self._url}{path}", headers=headers, json=body) as answer,
        ):
            if answer.status >= 400:
                raise RuntimeError(f"{method} {path}: {answer.status} {await answer.text()}")
            got: dict[str, Any] = await answer.json()
            return got


class Case:
    """One case: its own caller, its own ids, its own clock without idle gaps."""

    def __init__(self, number: int, case: dict[str, Any]) -> None:
        self.name: str = case["name"]
        self.calls: list[dict[str, Any]] = case["calls"]
        self.events: list[dict[str, Any]] = sorted(case["events"], key=lambda event: event["t"])
        self._base = (number + 1) * BLOCK
        self._number = number
        self.faults: list[str] = []

    def id(self, text: str) -> int:
        """The host's id for an id of the case."""
        return self._base + int(text)

    def own(self, reference: str) -> str:
        """The case's id for a reference of the host; the position before everything stays what it is."""
        return reference if reference == "0" else str(int(reference) - self._base)

    def address(self, text: str) -> str:
        """The host's address for one of the case."""
        return f"@{text[1:].partition('@')[0]}{self._number}@{DOMAIN}"

    def held(self, t: float) -> bool:
        """Whether a call is held at a time of the case."""
        return any(call["t"] <= t < call["returns"]["t"] for call in self.calls)

    def moments(self) -> list[float]:
        """Every time at which something happens, in order."""
        times = {event["t"] for event in self.events} | {call["t"] for call in self.calls}
        return sorted(times | {call["returns"]["t"] for call in self.calls})

    def real_s(self) -> dict[float, float]:
        """Times of the case as seconds of the run."""
        at, last, found = 0.0, None, {}
        for t in self.moments():
            if last is not None:
                at += t - last if self.held(last) else min(t - last, GAP_S)
            found[t] = at
            last = t
        return found

    async def run(self, host: Host, agent: Agent) -> None:
        """Let everything happen at its time and compare what the calls return."""
        clock = self.real_s()
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def until(t: float) -> None:
            await asyncio.sleep(max(0.0, began + clock[t] - loop.time()))

        async def happen() -> None:
            seen: set[str] = set()
            for event in self.events:
                await until(event["t"])
                if "sends" in event:
                    await host.sends(self, event["sends"])
                elif event["arrives"]["id"] not in seen:
                    seen.add(event["arrives"]["id"])
                    await host.arrives(self, event["arrives"])

        async with asyncio.TaskGroup() as group:
            group.create_task(happen())
            for call in self.calls:
                await until(call["t"])
                expected = call["returns"]
                asked = loop.time()
                got = await agent.call("wait_for_message", **self._arguments(call["args"]))
                self._compare(call, got)
                took, said = loop.time() - asked, clock[expected["t"]] - clock[call["t"]]
                if not said - EARLY_S <= took <= said + SLACK_S:
                    self.faults.append(f"call at {call['t']}: took {took:.2f} s instead of {said:.2f} s")

    def _arguments(self, args: dict[str, Any]) -> dict[str, Any]:
        given = dict(args)
        for name in ("after_id", "thread_of"):
            if name in given and given[name] != "0":
                given[name] = str(self.id(given[name]))
        if "from" in given:
            given["from_"] = self.address(given.pop("from"))
        return given

    def _compare(self, call: dict[str, Any], got: dict[str, Any]) -> None:
        expected = call["returns"]
        messages = got["messages"]
        ids = [self.own(message["id"]) for message in messages]
        seen: dict[str, Any] = {
            "status": got["status"],
            "ids": ids,
            "ids_count": len(ids),
            "first": ids[0] if ids else None,
            "last": ids[-1] if ids else None,
            "after_id": self.own(got["after_id"]),
            "already_returned": [self.own(item["id"]) for item in messages if item.get("already_returned")],
            "redelivered": [self.own(item["id"]) for item in messages if item.get("redelivered")],
        }
        for name in ("thread_root_id", "reply_target_id"):
            seen[name] = self.own(got[name]) if got[name] else None
        for name, value in expected.items():
            if name in seen and seen[name] != value:
                self.faults.append(f"call at {call['t']}: {name} {seen[name]!r} instead of {value!r}")


async def main() -> int:
    """Run all cases; 0 if every one holds."""
    with tempfile.TemporaryDirectory(prefix="fmsg-waits-") as scratch:
        async with EmbeddedRedis() as redis:
            log_dir = Path(scratch)
            sandbox = await Child.start("sandbox", "sandbox", "--json", "--domain", DOMAIN, env={}, log_dir=log_dir)
            at = (await sandbox.announcement("url"))[0]
            env = {"FMSG_API_URL": at["url"], "FMSG_REDIS_URL": redis.url, "FMSG_SEAL_KEY": SealKeys.generate()}
            daemon = await Child.start("daemon", "daemon", env=env, log_dir=log_dir)
            front = await Child.start("front", "front", "--port", "0", env=env, log_dir=log_dir)
            try:
                await daemon.announcement("daemon")
                mcp_url = (await front.announcement("mcp_url"))[0]["mcp_url"]
                control = SandboxControl(at["control"])
                await control.call("set_switches", changes={"send_buffer_frames": 0})
                cases = [Case(number, case) for number, case in enumerate(CASES)]
                host = Host(at["url"], control)
                async with asyncio.TaskGroup() as group:
                    for case in cases:
                        group.create_task(_play(case, host, control, mcp_url))
            finally:
                for child in (front, daemon, sandbox):
                    await child.stop()
    for case in cases:
        print(f"{'FAILED' if case.faults else 'held  '}  {case.name}")
        for fault in case.faults:
            print(f"          {fault}")
    return 1 if any(case.faults for case in cases) else 0


async def _play(case: Case, host: Host, control: SandboxControl, mcp_url: str) -> None:
    key = await control.make_person(case.address("@me@here.test"))
    async with over_http(mcp_url, key) as agent:
        await agent.call("whoami")
        await case.run(host, agent)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
