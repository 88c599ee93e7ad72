"""The fmsg protocol as a client meets it: values, the Web API client, the event socket. Knows neither Redis nor MCP."""
