"""FMSG-007, Behavioural Rules: what a reply is, what is refused, what is left behind, whose limits count."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcp_front.instructions import instructions
from tests.contract.requirements import proves
from tests.contract.town import Resident, Town, running_town

READING = {"get", "token"}
"""Routes that change nothing."""

LIMIT_BYTES = 10 * 1024 * 1024
"""What hosts take of a body and of an attachment."""


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    async with running_town() as running:
        yield running


@pytest.fixture
async def ann(town: Town) -> Resident:
    return await town.resident("ann")


@pytest.fixture
async def bob(town: Town) -> Resident:
    return await town.resident("bob", far=True)


@pytest.fixture
async def cat(town: Town) -> Resident:
    return await town.resident("cat")


def asked(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """Requests made in between, by route."""
    return {route: count - before.get(route, 0) for route, count in after.items() if count > before.get(route, 0)}


def file(name: str, size: int = 3) -> dict[str, str]:
    return {"filename": name, "data_base64": base64.b64encode(b"x" * size).decode()}


@proves("rules.reply_all")
async def test_reply_all_is_everybody_but_the_caller_once(
    town: Town, ann: Resident, bob: Resident, cat: Resident
) -> None:
    dan = await town.resident("dan")
    await ann.send(bob, cat.address.upper())
    message_id = (await cat.newest())["id"]
    await cat.call("add_recipients", id=message_id, add_to=[dan.address])
    sent = await cat.call("reply", id=message_id, body="all")
    assert sorted(sent["to"]) == sorted([ann.address, bob.address, dan.address])
    added = await dan.call("reply", id=message_id, body="me too")
    assert sorted(added["to"]) == sorted([ann.address, bob.address, cat.address])


@proves("rules.from_message")
async def test_the_root_does_not_matter(ann: Resident, bob: Resident, cat: Resident) -> None:
    await ann.send(bob, cat)
    aside = await cat.call("reply", id=(await cat.newest())["id"], body="psst", recipients=[ann.address])
    assert (await ann.call("reply", id=aside["id"], body="yes"))["to"] == [cat.address]


@proves("rules.terminal")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("reply", {"body": "but"}),
        ("reply", {"body": "but", "recipients": ["@x@there.test"], "allow_no_reply": True}),
        ("react", {"emoji": "👍"}),
        ("react", {"emoji": None}),
        ("add_recipients", {"add_to": ["@x@there.test"]}),
    ],
)
async def test_nothing_is_built_on_a_terminal_message(
    town: Town, ann: Resident, tool: str, arguments: dict[str, Any]
) -> None:
    message_id = str(town.here.control.deliver("@x@there.test", [ann.address], terminal=True))
    before = town.here.requests()
    got = await ann.call_with(tool, {"id": message_id, **arguments})
    assert got.is_error
    assert "terminal" in got.text
    assert asked(before, town.here.requests()).keys() <= READING


@proves("rules.terminal_told")
async def test_get_thread_tells_that_a_message_is_terminal(town: Town, ann: Resident) -> None:
    message_id = str(town.here.control.deliver("@x@there.test", [ann.address], terminal=True))
    got = await ann.call("get_thread", id=message_id)
    assert got["terminal"] is True
    assert "terminal" in got.text


@proves("rules.no_reply")
async def test_a_no_reply_message_is_answered_on_insistence_only(town: Town, ann: Resident, cat: Resident) -> None:
    message_id = str(town.here.control.deliver(cat.address, [ann.address], no_reply=True))
    for arguments in ({}, {"allow_no_reply": False}):
        before = town.here.requests()
        got = await ann.call_with("reply", {"id": message_id, "body": "but", **arguments})
        assert got.is_error
        assert "allow_no_reply" in got.text
        assert asked(before, town.here.requests()).keys() <= READING
    assert not (await ann.call("reply", id=message_id, body="but", allow_no_reply=True)).is_error


@proves("rules.no_reply_wait")
async def test_waits_do_not_return_no_reply_messages(town: Town, ann: Resident) -> None:
    town.here.control.deliver("@x@there.test", [ann.address], no_reply=True, body="no answer please")
    town.here.control.deliver("@x@there.test", [ann.address], body="answer please")
    got = await ann.call("wait_for_message", after_id="0", timeout_seconds=5, settle_seconds=0)
    assert [item["body"] for item in got["messages"]] == ["answer please"]


@proves("rules.reactions")
async def test_reactions_are_in_lists_only_when_asked_for_and_never_in_waits(ann: Resident, bob: Resident) -> None:
    await ann.send(bob)
    await bob.call("react", id=(await bob.newest())["id"], emoji="👍")
    assert (await ann.call("list_messages"))["messages"] == []
    shown = await ann.call("list_messages", include_reactions=True)
    assert [item["reaction"] for item in shown["messages"]] == ["👍"]
    assert (await ann.call("wait_for_message", after_id="0", timeout_seconds=0))["status"] == "timeout"


@proves("rules.one_call", "safety.immediate")
async def test_one_call_drafts_attaches_and_sends(town: Town, ann: Resident, bob: Resident) -> None:
    before = town.here.requests()
    await ann.call("send_message", to=[bob.address], body="x", attachments=[file("a"), file("b")])
    steps = asked(before, town.here.requests())
    assert (steps["create"], steps["attach"], steps["send"]) == (1, 2, 1)
    assert (await bob.newest())["attachments"] == [
        {"filename": name, "size": 3, "type": "application/octet-stream"} for name in ("a", "b")
    ]


@proves("rules.nothing_left")
@pytest.mark.parametrize(("route", "status"), [("attach", 413), ("attach", 500), ("send", 400), ("send", 503)])
async def test_a_failed_call_leaves_no_draft(town: Town, ann: Resident, bob: Resident, route: str, status: int) -> None:
    town.here.control.fail_next(route, status=status, text="no")
    got = await ann.call("send_message", to=[bob.address], body="x", attachments=[file("a")])
    assert got.is_error
    assert not town.here.host.core.state.messages
    assert (await bob.call("list_messages"))["messages"] == []


@proves("rules.no_own_limits", "rules.no_warnings", "rules.codes")
async def test_sizes_are_the_hosts_to_refuse_and_nobody_warns_of_them(town: Town, ann: Resident, bob: Resident) -> None:
    for arguments in ({"body": "x" * LIMIT_BYTES}, {"body": "x", "attachments": [file("big", LIMIT_BYTES)]}):
        got = await ann.call_with("send_message", {"to": [bob.address], **arguments})
        assert not got.is_error, got.text
        assert not re.search(r"limit|large|may (?:be|not)|warn", got.text, re.IGNORECASE)
    for arguments in ({"body": "x" * (LIMIT_BYTES + 1)}, {"body": "x", "attachments": [file("big", LIMIT_BYTES + 1)]}):
        got = await ann.call_with("send_message", {"to": [bob.address], **arguments})
        assert got.error["status"] == 413
        assert got.error["host_text"] in got.text
    many = await ann.call("send_message", to=[f"@u{n}@here.test" for n in range(300)], body="x")
    assert many.error["host_text"], "the number of recipients is the host's to refuse too"
    said = " ".join([instructions(None), *(tool.description or "" for tool in (await ann.client.list_tools()).tools)])
    assert not re.search(r"\d+ ?[KMG]i?B|size limit", said)


@proves("rules.codes")
async def test_delivery_codes_are_shown(town: Town, ann: Resident) -> None:
    sent = await ann.call("send_message", to=["@nobody@there.test"], topic="t", body="x")
    got = await ann.call("delivery_status", id=sent["id"])
    assert [(entry["status"], entry["code"], entry["meaning"]) for entry in got["recipients"]] == [
        ("failed", 100, "user unknown")
    ]
    assert "100 user unknown" in got.text


@proves("rules.identity")
async def test_no_argument_changes_who_sends(ann: Resident, bob: Resident) -> None:
    for name in ("from", "from_address", "sender", "as"):
        got = await ann.call_with("send_message", {"to": [bob.address], "body": "x", name: "@cat@here.test"})
        assert got.is_error
        assert got.text.startswith(f"{name}: ")
    for tool in (await ann.client.list_tools()).tools:
        names = tool.input_schema["properties"].keys()
        assert not names & {"sender", "as", "identity", "account", "api_key", "token"}
        assert "from" not in names or tool.name == "wait_for_message"
