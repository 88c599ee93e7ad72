"""MCP over Streamable HTTP: from a socket to a request, and from its result to a drained process."""
