"""``add_recipients``, ``react`` and ``delivery_status``."""

from __future__ import annotations

import pytest

from fmsg.directory import Directory
from fmsg.message import Draft
from tests.mcp_front.agents import Agent, World


async def test_added_recipients_get_the_message(world: World, ann: Agent, bob: Agent) -> None:
    dan = world.agent("dan")
    message_id = await ann.send(bob, topic="Join us")
    added = await ann.call("add_recipients", id=message_id, add_to=[dan.address, dan.address.upper()])
    assert (added["id"], added["added"], added["add_to"]) == (message_id, 1, [dan.address])
    assert added["sha256"]
    assert (await dan.newest())["topic"] == "Join us"
    assert (await dan.newest())["added"] == [
        {"from": ann.address, "to": [dan.address], "time": (await dan.newest())["added"][0]["time"]}
    ]


async def test_who_may_not_add_is_told_so_by_the_host(world: World, ann: Agent, bob: Agent) -> None:
    message_id = await ann.send(bob)
    dan = world.agent("dan")
    await ann.call("add_recipients", id=message_id, add_to=[dan.address])
    got = await dan.call("add_recipients", id=message_id, add_to=["@eve@here.test"])
    assert got.error["status"] == 403
    assert "only existing participants may add recipients" in got.text


async def test_a_reaction_is_made_replaced_and_cleared(ann: Agent, bob: Agent) -> None:
    await ann.send(bob)
    message_id = (await bob.newest())["id"]
    first = await bob.call("react", id=message_id, emoji="👍")
    assert first["reaction_id"]
    assert first["cleared"] is False
    assert (await bob.call("react", id=message_id, emoji="👍"))["reaction_id"] == first["reaction_id"]
    cleared = await bob.call("react", id=message_id, emoji="")
    assert cleared["cleared"] is True
    assert (await bob.newest())["reactions"] == []


async def test_clearing_where_nothing_was_sends_nothing(ann: Agent, bob: Agent) -> None:
    await ann.send(bob)
    cleared = await bob.call("react", id=(await bob.newest())["id"], emoji=None)
    assert (cleared["reaction_id"], cleared["cleared"]) == (None, True)


async def test_what_is_neither_an_emoji_nor_null_is_refused_here(ann: Agent) -> None:
    got = await ann.call("react", id="1", emoji=5)
    assert got.text == "emoji: must be a string or null."


@pytest.mark.parametrize("emoji", ["ab", "👍👍", "no emoji at all"])
async def test_what_is_an_emoji_is_for_the_host_to_say(ann: Agent, bob: Agent, emoji: str) -> None:
    await ann.send(bob)
    got = await bob.call("react", id=(await bob.newest())["id"], emoji=emoji)
    assert got.error["host_text"] == "emoji must be a single emoji, or empty to clear"


@pytest.mark.parametrize(
    ("tool", "arguments"), [("react", {"emoji": "👍"}), ("add_recipients", {"add_to": ["@eve@here.test"]})]
)
async def test_a_terminal_message_is_refused_before_anything_is_changed(
    world: World, ann: Agent, tool: str, arguments: dict[str, object]
) -> None:
    message_id = str(world.here.deliver("@x@there.test", [ann.address], terminal=True))
    before = world.requests()
    got = await ann.call_with(tool, {"id": message_id, **arguments})
    assert got.error["kind"] == "refused_here"
    assert "terminal" in got.text
    assert {route for route, count in world.requests().items() if count > before.get(route, 0)} <= {"get", "token"}


async def test_delivery_status_reports_every_recipient(world: World, ann: Agent, bob: Agent) -> None:
    sent = await ann.call("send_message", to=[bob.address, "@nobody@there.test"], topic="t", body="x")
    await ann.call("add_recipients", id=sent["id"], add_to=["@cat@here.test"])
    status = await ann.call("delivery_status", id=sent["id"])
    assert status["id"] == sent["id"]
    assert status["sent_at"] == sent["time"]
    found = {entry["addr"]: (entry["status"], entry["via"]) for entry in status["recipients"]}
    assert found[bob.address] == ("delivered", "to")
    assert found["@nobody@there.test"] == ("failed", "to")
    assert found["@cat@here.test"][1] == "add_to"
    assert "check the address" in status.text


async def test_a_draft_has_no_time_of_sending(ann: Agent, bob: Agent) -> None:
    draft = Draft(from_=ann.address, to=(bob.address,), type="text/plain", size=1, data="x")
    draft_id = await ann.context.caller.api.create_draft(draft)
    status = await ann.call("delivery_status", id=str(draft_id))
    assert status["sent_at"] is None
    assert "not sent" in status.text


async def test_recipients_is_another_name_for_add_to(ann: Agent, bob: Agent, cat: Agent) -> None:
    root = await ann.send(bob)
    got = await ann.call("add_recipients", id=root, recipients=[cat.address])
    assert got["add_to"] == [cat.address]
    both = await ann.call("add_recipients", id=root, recipients=[cat.address], add_to=[cat.address])
    assert both.text.startswith("recipients: add_recipients has no such argument")


async def test_short_names_of_added_recipients_are_told(world: World, bob: Agent) -> None:
    ann = world.agent("ann", directory=Directory(default_domain="here.test"))
    got = await ann.call("add_recipients", id=await ann.send(bob), add_to=["cat"])
    assert got["resolved"] == [{"input": "cat", "address": "@cat@here.test"}]
