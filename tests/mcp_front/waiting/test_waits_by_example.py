"""The rules by example: every case of ``waits.json`` through a whole `Waiting`, in virtual time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fmsg.message import Message
from mcp_front.waiting.request import WaitOutcome, WaitRequest
from tests.mcp_front.waiting.virtual import run
from tests.mcp_front.waiting.world import ME, World, ids

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "waits.json").read_text())["scenarios"]
BEFORE_S = 1000.0
"""Virtual time of the first call: the events before it have negative times."""
POLLED_OTHERWISE = frozenset(
    {
        "one after the window comes with the next call",
        "settle 0 returns at once",
        "the time limit cuts the window",
    }
)
"""Cases that only a push makes: a poll finds arrivals some seconds apart at the same time, or none before the limit."""
TOLERANCE_S = 0.06
"""Bells that ring in a settle window are answered a little later."""


def _put(world: World, fields: dict[str, Any]) -> Message:
    return world.host.put(
        int(fields["id"]),
        from_=fields["from"],
        pid=int(fields["pid"]) if fields["pid"] else None,
        to=tuple(fields.get("to", (ME,))),
        added=fields.get("added_by_batch", False),
        no_reply=fields.get("no_reply", False),
        reaction=fields.get("reaction"),
        terminal=fields.get("terminal", False),
    )


async def _happen(world: World, events: list[dict[str, Any]], *, pushed: bool) -> None:
    for event in sorted(events, key=lambda event: event["t"]):
        await _until(event["t"])
        if "sends" in event:
            _put(world, event["sends"])
            continue
        fields = event["arrives"]
        known = world.host.messages.get(int(fields["id"]))
        message = known or _put(world, fields)
        if pushed:
            await world.push(message, root=int(fields["root"]))


async def _until(t: float) -> None:
    await asyncio.sleep(max(BEFORE_S + t - asyncio.get_running_loop().time(), 0.0))


def _request(arguments: dict[str, Any]) -> WaitRequest:
    def reference(name: str) -> int | None:
        return int(arguments[name]) if name in arguments else None

    return WaitRequest(
        after_id=reference("after_id"),
        thread_of=reference("thread_of"),
        from_=arguments.get("from"),
        timeout_s=arguments["timeout_seconds"],
        settle_s=arguments["settle_seconds"],
        subscription=arguments.get("subscription"),
    )


def _check(outcome: WaitOutcome, expected: dict[str, Any]) -> None:
    assert outcome.status == expected["status"]
    if "ids" in expected:
        assert ids(outcome.ids) == [int(id_) for id_ in expected["ids"]]
    else:
        assert len(outcome.ids) == expected["ids_count"]
        assert (outcome.ids[0].id, outcome.ids[-1].id) == (int(expected["first"]), int(expected["last"]))
    assert outcome.after_id == int(expected["after_id"])
    for name in ("thread_root_id", "reply_target_id"):
        if name in expected:
            assert getattr(outcome, name) == int(expected[name]), name
    assert outcome.already_returned == {int(id_) for id_ in expected.get("already_returned", [])}
    assert outcome.redelivered == {int(id_) for id_ in expected.get("redelivered", [])}
    if "pending" in expected:
        assert ids(outcome.pending) == [int(id_) for id_ in expected["pending"]]
    for id_, reason in expected.get("skipped", {}).items():
        assert (int(id_), reason) in outcome.skipped
    if "note" in expected:
        assert expected["note"] in outcome.notes


@pytest.mark.parametrize("replicas", [1, 2], ids=["one replica", "two replicas"])
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_feed_that_was_there_from_the_beginning(case: dict[str, Any], replicas: int) -> None:
    """The ledger began before anything arrived; every call answers at the second it should, on any replica."""

    async def scenario() -> None:
        world = World()
        await world.begin_ledger()
        await world.feed_goes_live()
        fronts = [world.waiting, world.another_front()][:replicas]
        events = asyncio.create_task(_happen(world, case["events"], pushed=True))
        for number, call in enumerate(case["calls"]):
            await _until(call["t"])
            await asyncio.sleep(0)
            outcome = await fronts[number % replicas].wait(world.caller, _request(call["args"]))
            took_s = asyncio.get_running_loop().time() - BEFORE_S
            _check(outcome, call["returns"])
            assert outcome.transport == "websocket"
            assert took_s == pytest.approx(call["returns"]["t"], abs=TOLERANCE_S)
        events.cancel()
        await world.close()

    run(scenario())


POLLED = [case for case in CASES if case["name"] not in POLLED_OTHERWISE]


@pytest.mark.parametrize("case", POLLED, ids=[case["name"] for case in POLLED])
def test_a_cold_start(case: dict[str, Any]) -> None:
    """No ledger until the first call, no feed ever: the same batches and positions by polling, somewhat later."""

    async def scenario() -> None:
        world = World()
        events = asyncio.create_task(_happen(world, case["events"], pushed=False))
        for call in case["calls"]:
            await _until(call["t"])
            await asyncio.sleep(0)
            outcome = await world.waiting.wait(world.caller, _request(call["args"]))
            _check(outcome, call["returns"])
            assert outcome.transport == "poll"
        events.cancel()
        await world.close()

    run(scenario())
