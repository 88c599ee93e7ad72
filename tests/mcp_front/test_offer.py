"""The toolbox hands everything on."""

from __future__ import annotations

import mcp_types

from mcp_front.offer import FmsgToolbox
from mcp_front.toolbox import Toolbox
from mcp_front.tools.registry import TOOLS
from tests.mcp_front.agents import Agent


def offered() -> Toolbox:
    return FmsgToolbox()


def test_definitions() -> None:
    box = offered()
    assert [tool.name for tool in box.tools("http")] == list(TOOLS)
    assert len(box.templates()) == 2
    assert len(box.resources()) == 1
    assert len(box.prompts()) == 2
    assert box.instructions(None)
    assert [name for name in TOOLS if box.holds(name)] == ["wait_for_message"]


async def test_calls(ann: Agent) -> None:
    box = offered()
    result = await box.call_tool(ann.context, "whoami", None)
    assert result.structured_content["address"] == ann.address
    assert (await box.read_resource(ann.context, "fmsg://inbox")).contents
    assert (await box.get_prompt(ann.context, "chat", None)).messages
    params = mcp_types.CompleteRequestParams(
        ref=mcp_types.PromptReference(type="ref/prompt", name="reply"),
        argument=mcp_types.CompletionArgument(name="id", value=""),
    )
    assert (await box.complete(ann.context, params)).completion.values == []
