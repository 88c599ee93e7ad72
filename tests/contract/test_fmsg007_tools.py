"""FMSG-007, Tools: names, arguments, fields, errors, seen through a front by an MCP client."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import mcp_types
import pytest

from mcp_front.settings import FrontSettings
from tests.contract.requirements import proves
from tests.contract.town import Resident, Town, running_town
from tests.mcp_front.agents import until

CORE = {
    "whoami": set(),
    "list_messages": {"limit", "offset", "include_reactions"},
    "get_message": {"id", "max_body_bytes"},
    "get_thread": {"id", "max_messages"},
    "send_message": {"to", "topic", "body", "type", "important", "no_reply", "attachments"},
    "reply": {"id", "body", "recipients", "type", "important", "no_reply", "allow_no_reply", "attachments"},
}
RECOMMENDED = {
    "list_sent": {"limit", "offset"},
    "delivery_status": {"id"},
    "add_recipients": {"id", "add_to"},
    "react": {"id", "emoji"},
    "mark_read": {"ids"},
    "download_attachment": {"id", "filename"},
    "resolve_address": {"name"},
    "wait_for_message": {"after_id", "thread_of", "from", "timeout_seconds", "settle_seconds"},
}
ITEM = {
    "id", "pid", "from", "to", "topic", "time", "read", "important", "no_reply", "terminal", "type", "size", "preview",
    "attachments", "reactions",
}  # fmt: skip
DELIVERY = {"addr", "status", "time", "code", "via"}
SENT = {"id", "time", "from", "to", "topic", "attachments", "redactions"}


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


async def tools(resident: Resident) -> dict[str, mcp_types.Tool]:
    return {tool.name: tool for tool in (await resident.client.list_tools()).tools}


@proves("tools.core")
async def test_the_core_tools_with_their_arguments(ann: Resident) -> None:
    found = await tools(ann)
    for name, arguments in CORE.items():
        assert arguments <= found[name].input_schema["properties"].keys(), name
    defaults = found["list_messages"].input_schema["properties"]
    assert (defaults["limit"]["default"], defaults["offset"]["default"]) == (20, 0)
    assert defaults["include_reactions"]["default"] is False
    assert found["send_message"].input_schema["properties"]["type"]["default"] == "text/markdown; charset=utf-8"
    assert found["send_message"].input_schema["properties"]["to"]["minItems"] == 1
    assert found["reply"].input_schema["properties"]["allow_no_reply"]["default"] is False


@proves("tools.recommended")
async def test_the_recommended_tools_with_their_arguments(ann: Resident) -> None:
    found = await tools(ann)
    for name, arguments in RECOMMENDED.items():
        assert arguments <= found[name].input_schema["properties"].keys(), name


@proves("tools.both")
async def test_every_tool_answers_with_text_and_structured_content(ann: Resident, bob: Resident) -> None:
    await ann.send(bob)
    message_id = (await bob.newest())["id"]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("whoami", {}),
        ("list_messages", {}),
        ("get_message", {"id": message_id}),
        ("get_thread", {"id": message_id}),
        ("reply", {"id": message_id, "body": "yes"}),
        ("list_sent", {}),
        ("delivery_status", {"id": message_id}),
        ("react", {"id": message_id, "emoji": "👍"}),
        ("mark_read", {"ids": [message_id]}),
        ("resolve_address", {"name": ann.address}),
        ("wait_for_message", {"timeout_seconds": 0}),
        ("wait_subscriptions", {"action": "list"}),
    ]
    for name, arguments in calls:
        got = await bob.call_with(name, arguments)
        assert not got.is_error, got.text
        assert got.text.strip(), name
        assert got.fields, name


@proves("tools.errors", "tools.verbatim")
@pytest.mark.parametrize("words", ['no: "quoted" & <tagged>', "zwei Zeilen\nund Ümlaute"])
async def test_failures_are_results_with_the_hosts_words(ann: Resident, words: str) -> None:
    ann.site.control.fail_next("get", status=409, text=words)
    got = await ann.call("get_message", id="1")
    assert got.is_error
    assert words in got.text
    assert got.error["host_text"] == words
    assert got.error["next"] in got.text


@proves("tools.whoami")
async def test_whoami(ann: Resident) -> None:
    got = await ann.call("whoami")
    assert (got["address"], got["api_url"], got["transport"]) == (ann.address, ann.site.api_url, "http")


@proves("tools.list_messages", "tools.item")
async def test_list_messages(ann: Resident, bob: Resident) -> None:
    for number in range(3):
        await ann.send(bob, topic=f"t{number}")
    first = await bob.call("list_messages", limit=2)
    assert [item["topic"] for item in first["messages"]] == ["t2", "t1"]
    assert all(item.keys() >= ITEM for item in first["messages"])
    assert first["count"] == 2
    second = await bob.call("list_messages", limit=2, offset=first["next_offset"])
    assert [item["topic"] for item in second["messages"]] == ["t0"]
    assert second["next_offset"] is None


@proves("tools.get_message", "tools.item")
async def test_get_message(ann: Resident, bob: Resident) -> None:
    await ann.send(bob, body="x" * 100)
    message_id = (await bob.newest())["id"]
    got = await bob.call("get_message", id=message_id, max_body_bytes=10)
    assert got["message"].keys() >= ITEM
    assert (got["body"], got["body_truncated"]) == ("x" * 10, True)
    image = bob.site.control.deliver("@x@here.test", [bob.address], data=b"\x89PNG", type_="image/png")
    got = await bob.call("get_message", id=str(image))
    assert (got["body"], got["body_truncated"]) == (None, False)


@proves("tools.get_thread")
async def test_get_thread(ann: Resident, bob: Resident) -> None:
    root_id = await ann.send(bob, topic="Lunch", body="one")
    await bob.call("reply", id=(await bob.newest())["id"], body="two")
    answer = (await ann.newest())["id"]
    got = await ann.call("get_thread", id=answer)
    assert (got["root_id"], got["trigger_id"], got["complete"]) == (root_id, answer, True)
    assert (got["participants"], got["reply_target_id"], got["terminal"]) == ([bob.address], answer, False)
    assert [message["body"] for message in got["messages"]] == ["one", "two"]
    for message in got["messages"]:
        assert message.keys() >= {
            "id", "pid", "visible", "from", "to", "time", "topic", "type", "size", "body", "body_truncated",
            "attachments",
        }  # fmt: skip
    short = await ann.call("get_thread", id=answer, max_messages=1)
    assert short["complete"] is False


@proves("tools.send_message")
async def test_send_message(ann: Resident, bob: Resident) -> None:
    attachment = {"filename": "a.txt", "data_base64": base64.b64encode(b"abc").decode(), "content_type": "text/plain"}
    got = await ann.call("send_message", to=[bob.address], topic="T", body="B", attachments=[attachment])
    assert got.fields.keys() >= SENT
    assert (got["from"], got["to"], got["topic"]) == (ann.address, [bob.address], "T")
    assert got["attachments"] == [{"filename": "a.txt", "size": 3, "type": "text/plain"}]
    received = await bob.newest()
    assert (received["topic"], received["pid"], received["type"]) == ("T", None, "text/markdown; charset=utf-8")


@proves("tools.reply")
async def test_reply(ann: Resident, bob: Resident) -> None:
    sent = await ann.send(bob)
    received = (await bob.newest())["id"]
    got = await bob.call("reply", id=received, body="yes")
    assert got.fields.keys() >= SENT | {"parent_id"}
    assert got["parent_id"] == received
    assert (await ann.newest())["pid"] == sent


@proves("tools.list_sent")
async def test_list_sent(ann: Resident, bob: Resident) -> None:
    await ann.send(bob)
    (item,) = (await ann.call("list_sent"))["messages"]
    assert item.keys() >= ITEM
    (delivery,) = item["delivery"]
    assert delivery.keys() >= DELIVERY
    assert (delivery["addr"], delivery["status"]) == (bob.address, "delivered")


@proves("tools.delivery_status")
async def test_delivery_status(town: Town, ann: Resident, bob: Resident) -> None:
    sent = await ann.call("send_message", to=[bob.address, "@nobody@there.test"], topic="t", body="x")
    cat = await town.resident("cat")
    await ann.call("add_recipients", id=sent["id"], add_to=[cat.address])
    got = await ann.call("delivery_status", id=sent["id"])
    assert (got["id"], got["sent_at"]) == (sent["id"], sent["time"])
    assert all(delivery.keys() >= DELIVERY for delivery in got["recipients"])
    assert {delivery["addr"]: (delivery["status"], delivery["via"]) for delivery in got["recipients"]} == {
        bob.address: ("delivered", "to"),
        "@nobody@there.test": ("failed", "to"),
        cat.address: ("delivered", "add_to"),
    }


@proves("tools.add_recipients")
async def test_add_recipients(town: Town, ann: Resident, bob: Resident) -> None:
    cat = await town.resident("cat")
    message_id = await ann.send(bob)
    got = await ann.call("add_recipients", id=message_id, add_to=[cat.address.upper()])
    assert (got["id"], got["added"], got["add_to"]) == (message_id, 1, [cat.address])
    assert (await cat.newest())["id"] == message_id


@proves("tools.react")
async def test_react(ann: Resident, bob: Resident) -> None:
    await ann.send(bob)
    message_id = (await bob.newest())["id"]
    got = await bob.call("react", id=message_id, emoji="👍")
    assert (got["id"], got["cleared"]) == (message_id, False)
    assert isinstance(got["reaction_id"], str)
    assert (await bob.newest())["reactions"] == [{"emoji": "👍", "from": [bob.address]}]
    for nothing in (None, ""):
        assert (await bob.call("react", id=message_id, emoji=nothing))["cleared"] is True
    assert (await bob.newest())["reactions"] == []


@proves("tools.mark_read")
async def test_mark_read(ann: Resident, bob: Resident) -> None:
    await ann.send(bob)
    message_id = (await bob.newest())["id"]
    got = await bob.call("mark_read", ids=[message_id, "4711"])
    assert [item["id"] for item in got["marked"]] == [message_id]
    assert [failure["id"] for failure in got["failed"]] == ["4711"]


@proves("tools.download_attachment")
async def test_download_attachment(ann: Resident, bob: Resident) -> None:
    data = bytes(range(256))
    await ann.send(bob, attachments=[{"filename": "a.bin", "data_base64": base64.b64encode(data).decode()}])
    message_id = (await bob.newest())["id"]
    got = await bob.call("download_attachment", id=message_id, filename="a.bin")
    assert (got["id"], got["filename"], got["size"], got["saved_to"]) == (message_id, "a.bin", 256, None)
    assert got["content_type"]
    block = got.result.content[1]
    assert isinstance(block, mcp_types.EmbeddedResource)
    assert isinstance(block.resource, mcp_types.BlobResourceContents)
    assert base64.b64decode(block.resource.blob) == data
    assert (await bob.call("download_attachment", id=message_id, filename="a.bin", max_inline_bytes=255)).is_error


@proves("tools.save_to_hosted", "safety.downloads")
async def test_a_hosted_server_rejects_save_to(ann: Resident, bob: Resident) -> None:
    await ann.send(bob, attachments=[{"filename": "a.bin", "data_base64": "QQ=="}])
    got = await bob.call(
        "download_attachment", id=(await bob.newest())["id"], filename="a.bin", save_to="/tmp/never-written"
    )
    assert got.is_error
    assert got.text.startswith("save_to: ")


@proves("tools.resolve_address")
async def test_resolve_address(ann: Resident) -> None:
    got = await ann.call("resolve_address", name="@Bob@There.test")
    assert got.fields == {"address": "@bob@there.test", "resolution": "literal"}


@proves("tools.wait_for_message", "tools.item")
async def test_wait_for_message(ann: Resident, bob: Resident) -> None:
    waiting = asyncio.create_task(bob.call("wait_for_message", timeout_seconds=20, settle_seconds=0))
    await until(lambda: bob.site.requests().get("list", 0) > 0)
    await ann.send(bob, topic="T", body="hello")
    got = await waiting
    (item,) = got["messages"]
    assert item.keys() >= ITEM | {"body"}
    assert got["status"] == "message"
    assert got["after_id"] == got["thread_root_id"] == got["reply_target_id"] == item["id"]
    assert got["transport"] in ("websocket", "poll")
    again = await bob.call("wait_for_message", after_id=got["after_id"], timeout_seconds=0)
    assert (again["status"], again["messages"], again["after_id"]) == ("timeout", [], got["after_id"])


@proves("tools.wait_settle")
async def test_what_follows_on_the_thread_comes_together(ann: Resident, bob: Resident) -> None:
    control = bob.site.control
    first = control.deliver(ann.address, [bob.address], topic="T", body="one")
    waiting = asyncio.create_task(bob.call("wait_for_message", after_id="0", timeout_seconds=20, settle_seconds=2))
    control.deliver("@other@here.test", [bob.address], topic="Another", body="noise")
    control.deliver(ann.address, [bob.address], body="two", pid=first)
    got = await waiting
    assert [item["body"] for item in got["messages"]] == ["one", "two"]
    nothing_lost = await bob.call("wait_for_message", after_id=got["after_id"], timeout_seconds=0, settle_seconds=0)
    assert [item["body"] for item in nothing_lost["messages"]] == ["noise"]


@proves("tools.wait_passes_over", "rules.no_reply_wait", "rules.reactions")
async def test_own_messages_reactions_and_no_reply_messages_do_not_qualify(ann: Resident, bob: Resident) -> None:
    await ann.send(bob, ann.address)
    await bob.call("react", id=(await bob.newest())["id"], emoji="👍")
    ann.site.control.deliver("@x@there.test", [ann.address], no_reply=True)
    got = await ann.call("wait_for_message", after_id="0", timeout_seconds=0)
    assert got["status"] == "timeout"


@proves("tools.wait_cap")
async def test_a_wait_is_capped_and_answers_timeout() -> None:
    async with running_town(wait_max_s=0.2) as town:
        bob = await town.resident("bob")
        got = await bob.call("wait_for_message", timeout_seconds=600)
        assert got["status"] == "timeout"
    assert FrontSettings().wait_max_s == 230.0
