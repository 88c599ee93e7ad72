"""The MCP side: tools, resources, prompts and waiting, over stdio and Streamable HTTP."""
