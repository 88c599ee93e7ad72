"""Pydantic AI: waits for fmsg messages, has a model answer each of them, and goes on."""

from __future__ import annotations

import asyncio
import os

from fastmcp.client import Client
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models import Model

INSTRUCTIONS = "Answer each message with the tool reply, with the id that its last line names. Be brief and friendly."


async def main(model: str | Model = "openai:gpt-5-mini", answers: int | None = None) -> None:
    """Answer for ever, or as many messages as ``answers`` says."""
    env = {name: os.environ[name] for name in ("FMSG_API_URL", "FMSG_API_KEY")}
    fmsg = Client(StdioTransport("fmsg-mcpd", ["stdio"], env=env), timeout=240)
    agent = Agent(model, instructions=INSTRUCTIONS, toolsets=[MCPToolset(fmsg)])
    async with fmsg:
        position: dict[str, str] = {}
        while answers is None or answers > 0:
            asked = {"subscription": "postmaster", "timeout_seconds": 200, **position}
            result = await fmsg.call_tool("wait_for_message", asked)
            found = result.structured_content or {}
            if found.get("status") == "message":
                await agent.run("\n".join(part.text for part in result.content if part.type == "text"))
                answers = None if answers is None else answers - 1
            # Only now: what was not answered comes again.
            position = {"after_id": found["after_id"]} if found.get("after_id") else position


if __name__ == "__main__":
    asyncio.run(main())
