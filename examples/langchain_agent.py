"""LangChain: waits for fmsg messages, has a model answer each of them, and goes on."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.sessions import StdioConnection
from langchain_mcp_adapters.tools import load_mcp_tools

INSTRUCTIONS = "Answer each message with the tool reply, with the id that its last line names. Be brief and friendly."


async def main(model: str | BaseChatModel = "openai:gpt-5-mini", answers: int | None = None) -> None:
    """Answer for ever, or as many messages as ``answers`` says."""
    env = {name: os.environ[name] for name in ("FMSG_API_URL", "FMSG_API_KEY", "PATH")}
    server = StdioConnection(transport="stdio", command="fmsg-mcpd", args=["stdio"], env=env)
    async with MultiServerMCPClient({"fmsg": server}).session("fmsg") as session:
        agent = create_agent(model, await load_mcp_tools(session), system_prompt=INSTRUCTIONS)
        position: dict[str, str] = {}
        while answers is None or answers > 0:
            asked = {"subscription": "postmaster", "timeout_seconds": 200, **position}
            result = await session.call_tool("wait_for_message", asked, read_timeout_seconds=timedelta(minutes=4))
            found = result.structuredContent or {}
            if found.get("status") == "message":
                text = "\n".join(part.text for part in result.content if part.type == "text")
                await agent.ainvoke({"messages": [{"role": "user", "content": text}]})
                answers = None if answers is None else answers - 1
            # Only now: what was not answered comes again.
            position = {"after_id": found["after_id"]} if found.get("after_id") else position


if __name__ == "__main__":
    asyncio.run(main())
