"""Messages and threads by URI: framed Markdown, nothing enumerated, faults told by the protocol."""

from __future__ import annotations

import mcp_types
import pytest
from mcp.shared.exceptions import MCPError

from fmsg.message import Draft
from mcp_front.framing import STATEMENT
from mcp_front.resources import read_resource, resource_templates, resources
from tests.mcp_front.agents import Agent, World

MAX_ID = 2**63 - 1


async def read(agent: Agent, uri: str) -> str:
    result = await read_resource(agent.context, uri)
    (content,) = result.contents
    assert isinstance(content, mcp_types.TextResourceContents)
    assert (content.uri, content.mime_type) == (uri, "text/markdown")
    return content.text


def test_the_two_templates_of_the_standard() -> None:
    assert {template.uri_template: template.mime_type for template in resource_templates()} == {
        "fmsg://message/{id}": "text/markdown",
        "fmsg://thread/{id}": "text/markdown",
    }


async def test_resources_do_not_enumerate_messages(world: World, ann: Agent) -> None:
    before = resources()
    world.here.deliver("@x@there.test", [ann.address])
    assert resources() == before
    assert [resource.uri for resource in before] == ["fmsg://inbox"]


async def test_a_message_is_headers_and_body_framed(world: World, ann: Agent) -> None:
    world.here.set_next_id(MAX_ID)
    world.here.deliver("@x@there.test", [ann.address], topic="A *topic*", body="# body\n```\ncode\n```")
    text = await read(ann, f"fmsg://message/{MAX_ID}")
    assert text.startswith(STATEMENT)
    for part in (str(MAX_ID), "@x@there.test", '"A *topic*"', "# body\n```\ncode\n```", "\n````\n"):
        assert part in text


async def test_a_body_that_is_no_text_is_not_there(world: World, ann: Agent) -> None:
    message_id = world.here.deliver("@x@there.test", [ann.address], data=b"\x89PNG", type_="image/png")
    assert "no text" in await read(ann, f"fmsg://message/{message_id}")


async def test_a_thread_is_root_first_and_bounded(world: World, ann: Agent) -> None:
    last = world.here.deliver("@x@there.test", [ann.address], topic="t", body="message 0")
    for number in range(1, 40):
        last = world.here.deliver("@x@there.test", [ann.address], body=f"message {number}", pid=last)
    text = await read(ann, f"fmsg://thread/{last}")
    assert text.index("message 0") < text.index("message 38") < text.index("message 39")
    assert "message 5\n" not in text
    assert "left out" in text


async def test_the_inbox_shows_the_newest(world: World, ann: Agent) -> None:
    world.here.deliver("@x@there.test", [ann.address], topic="the topic", body="the body")
    text = await read(ann, "fmsg://inbox")
    assert "the topic" in text
    assert "the body" in text


@pytest.mark.parametrize(
    "uri",
    [
        "fmsg://message/", "fmsg://message/x", "fmsg://message/-1", "fmsg://message/1/2", "fmsg://message/9223372036854775808",
        "fmsg://message/٣", "fmsg://thread/1?x", "fmsg://thread/ 1", "fmsg://other/1", "http://x", "", "fmsg://message/1\n",
    ],
)  # fmt: skip
async def test_a_uri_that_names_nothing_is_an_invalid_parameter_with_a_reason(
    world: World, ann: Agent, uri: str
) -> None:
    with pytest.raises(MCPError) as error:
        await read_resource(ann.context, uri)
    assert error.value.error.code == mcp_types.INVALID_PARAMS
    assert "fmsg://" in error.value.error.message or "reference" in error.value.error.message
    assert world.requests() == {}


async def test_somebody_elses_message_and_an_unknown_one_are_invalid_parameters_with_the_hosts_words(
    ann: Agent, bob: Agent, cat: Agent
) -> None:
    message_id = await ann.send(bob)
    for uri, words in ((f"fmsg://message/{message_id}", "access denied"), ("fmsg://thread/4711", "not found")):
        with pytest.raises(MCPError) as error:
            await read_resource(cat.context, uri)
        assert error.value.error.code == mcp_types.INVALID_PARAMS
        assert words in error.value.error.message


async def test_a_host_in_trouble_is_an_internal_error(world: World, ann: Agent) -> None:
    world.here.fail_next("get", status=503, text="down")
    with pytest.raises(MCPError) as error:
        await read_resource(ann.context, "fmsg://message/1")
    assert error.value.error.code == mcp_types.INTERNAL_ERROR
    assert "down" in error.value.error.message


async def test_somebody_elses_draft_is_not_there_however_it_is_asked_for(ann: Agent, cat: Agent) -> None:
    """Current hosts show a draft to whom it names; who wrote it may still think better of it."""
    draft = Draft(from_=ann.address, to=(cat.address,), type="text/plain", size=6, data="secret")
    draft_id = str(await ann.context.caller.api.create_draft(draft))
    for tool in ("get_message", "get_thread", "delivery_status"):
        assert (await cat.call(tool, id=draft_id)).error["status"] == 404
        assert "secret" in (await ann.call("get_message", id=draft_id)).text
    for uri in (f"fmsg://message/{draft_id}", f"fmsg://thread/{draft_id}"):
        with pytest.raises(MCPError, match="404"):
            await read_resource(cat.context, uri)
