"""FMSG-007, Message References, Resources, Prompts: what goes over the boundary, and in what form."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from fmsg.message import Draft
from sandbox.switches import OLDER
from tests.contract.requirements import proves
from tests.contract.town import Resident, Town, running_town, text_of
from tests.mcp_front.agents import running_world

MAX_ID = 2**63 - 1
NO_REFERENCES = [5, 5.0, True, None, "", "x", "-1", "+1", " 1", "1 ", "1\n", "01", "1.0", "1e3", "0x10", "٣", "１", "0",
                 str(2**63), "9" * 30, ["1"], {"id": "1"}]  # fmt: skip


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    async with running_town() as running:
        yield running


@pytest.fixture
async def ann(town: Town) -> Resident:
    return await town.resident("ann")


@proves("references.strings", "references.exact")
async def test_the_largest_id_goes_through_every_tool_as_a_string(town: Town, ann: Resident) -> None:
    control = town.here.control
    control.create_address("@cat@here.test")
    control.set_next_id(MAX_ID - 3)
    root = control.deliver("@cat@here.test", [ann.address], topic="t", body="b")
    assert root == MAX_ID - 3
    reply = await ann.call("reply", id=str(root), body="yes", idempotency_key="k")
    assert (reply["id"], reply["parent_id"]) == (str(MAX_ID - 2), str(root))
    results = [
        reply,
        await ann.call("get_message", id=str(root)),
        await ann.call("get_thread", id=reply["id"]),
        await ann.call("list_messages"),
        await ann.call("list_sent"),
        await ann.call("mark_read", ids=[str(root)]),
        await ann.call("delivery_status", id=reply["id"]),
        await ann.call("wait_for_message", after_id="0", thread_of=str(root), timeout_seconds=0),
        await ann.call("add_recipients", id=reply["id"], add_to=["@cat@here.test"]),
        await ann.call("react", id=str(root), emoji="👍"),
    ]
    for got in results:
        assert not got.is_error, got.text
        for number in re.findall(r"(?<![0-9a-f])\d{18,}(?![0-9a-f])", json.dumps(got.fields)):
            assert MAX_ID - 4 < int(number) <= MAX_ID
        assert all(not isinstance(value, int) or abs(value) < 2**53 for value in _numbers(got.fields))
    assert results[-1]["reaction_id"] == str(MAX_ID - 1)


def _numbers(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [found for item in value.values() for found in _numbers(item)]
    if isinstance(value, list):
        return [found for item in value for found in _numbers(item)]
    return [value]


@proves("references.digits", "references.strings", "first.validation")
@pytest.mark.parametrize("tool", ["get_message", "get_thread", "reply", "react", "delivery_status", "wait_for_message"])
async def test_what_is_no_reference_is_rejected_by_the_name_of_its_argument(
    town: Town, ann: Resident, tool: str
) -> None:
    before = town.here.requests()
    argument = "thread_of" if tool == "wait_for_message" else "id"
    more: dict[str, Any] = {"reply": {"body": "x"}, "react": {"emoji": "👍"}}.get(tool, {})
    for value in NO_REFERENCES:
        if value in (None, "") and tool == "wait_for_message":
            continue  # An optional argument that is null or empty is absent.
        got = await ann.call_with(tool, {argument: value, **more})
        assert got.is_error, value
        assert got.text.startswith(f"{argument}: "), got.text
    assert town.here.requests() == before, "nothing was asked of the host"


@proves("references.sha256")
async def test_sha256_is_there_where_the_host_gives_it(town: Town, ann: Resident) -> None:
    message_id = town.here.control.deliver("@x@there.test", [ann.address], body="b")
    digest = (await ann.newest())["sha256"]
    assert re.fullmatch(r"[0-9a-f]{64}", digest)
    assert (await ann.call("get_thread", id=str(message_id)))["messages"][0]["sha256"] == digest
    async with running_world(OLDER) as old:
        agent = old.agent("ann")
        old.here.deliver("@x@there.test", [agent.address], body="b")
        assert "sha256" not in await agent.newest()


@proves("references.times")
async def test_times_are_in_utc_and_a_draft_has_none() -> None:
    async with running_world() as world:
        ann, bob = world.agent("ann"), world.agent("bob", "there.test")
        await ann.send(bob)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", (await bob.newest())["time"])
        draft = Draft(from_=ann.address, to=(bob.address,), type="text/plain", size=1, data="x")
        draft_id = await ann.context.caller.api.create_draft(draft)
        assert (await ann.call("get_message", id=str(draft_id)))["message"]["time"] is None


@proves("references.addresses", "references.resolved")
async def test_addresses_come_back_full_and_in_lower_case() -> None:
    async with running_town(default_domain="here.test") as town:
        ann, bob = await town.resident("ann"), await town.resident("bob", far=True)
        sent = await ann.call("send_message", to=["Cat", "@BOB@There.TEST"], topic="t", body="x")
        assert sent["to"] == ["@cat@here.test", "@bob@there.test"]
        got = await bob.newest()
        assert (got["from"], got["to"]) == (ann.address, sent["to"])
        added = await ann.call("add_recipients", id=sent["id"], add_to=["DAN"])
        assert added["add_to"] == ["@dan@here.test"]
        status = await ann.call("delivery_status", id=sent["id"])
        assert {entry["addr"] for entry in status["recipients"]} == {*sent["to"], "@dan@here.test"}


@proves("resources.templates", "resources.markdown")
async def test_the_two_resources(town: Town, ann: Resident) -> None:
    templates = (await ann.client.list_resource_templates()).resource_templates
    assert {template.uri_template for template in templates} >= {"fmsg://message/{id}", "fmsg://thread/{id}"}
    root = town.here.control.deliver("@x@there.test", [ann.address], topic="Topic", body="first body")
    last = town.here.control.deliver("@x@there.test", [ann.address], body="second body", pid=root)
    message = (await ann.client.read_resource(f"fmsg://message/{last}")).contents[0]
    thread = (await ann.client.read_resource(f"fmsg://thread/{last}")).contents[0]
    assert message.mime_type == thread.mime_type == "text/markdown"
    assert "second body" in text_of(message)
    assert "@x@there.test" in text_of(message)
    assert text_of(thread).index("first body") < text_of(thread).index("second body")


@proves("resources.not_listed")
async def test_messages_are_not_listed(town: Town, ann: Resident) -> None:
    for _ in range(5):
        town.here.control.deliver("@x@there.test", [ann.address])
    listed = (await ann.client.list_resources()).resources
    assert not [resource for resource in listed if str(resource.uri).startswith(("fmsg://message", "fmsg://thread"))]


@proves("first.validation", "first.errors")
@pytest.mark.parametrize("uri", ["fmsg://message/x", "fmsg://message/1/2", "fmsg://other/1", "file:///etc/passwd"])
async def test_a_uri_that_names_nothing_is_an_error_of_the_protocol(ann: Resident, uri: str) -> None:
    with pytest.raises(MCPError, match="fmsg://"):
        await ann.client.read_resource(uri)


@proves("prompts.names")
async def test_the_prompts(ann: Resident) -> None:
    assert {prompt.name for prompt in (await ann.client.list_prompts()).prompts} == {"chat", "reply"}
    assert (await ann.client.get_prompt("chat", {})).messages
    assert (await ann.client.get_prompt("reply", {"id": "5"})).messages
