"""What arrived for each caller, in order, durably. Knows neither MCP nor WebSockets."""
