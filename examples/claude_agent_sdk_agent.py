"""Claude Agent SDK: has Claude wait for fmsg messages, answer each of them, and go on."""

from __future__ import annotations

import asyncio
import os

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ClaudeSDKClient, TextBlock

TURN = """\
Call wait_for_message with subscription "postmaster", timeout_seconds 200, and the after_id of your last result if you
have one. If messages come, answer with the tool reply: its id is reply_target_id. Be brief and friendly. Then stop."""


async def main() -> None:
    """Answer for ever. One turn waits once, so that the conversation can be bounded or stopped between turns."""
    env = {name: os.environ[name] for name in ("FMSG_API_URL", "FMSG_API_KEY")}
    options = ClaudeAgentOptions(
        mcp_servers={"fmsg": {"type": "stdio", "command": "fmsg-mcpd", "args": ["stdio"], "env": env}},
        allowed_tools=["mcp__fmsg__wait_for_message", "mcp__fmsg__reply"],
        env={"MCP_TOOL_TIMEOUT": "240000"},
    )
    async with ClaudeSDKClient(options=options) as client:
        while True:
            await client.query(TURN)
            async for message in client.receive_response():
                if isinstance(message, AssistantMessage):
                    for block in message.content:
                        if isinstance(block, TextBlock):
                            print(block.text)


if __name__ == "__main__":
    asyncio.run(main())
