"""Signing in: an OAuth 2.1 authorization server without a database, beside the MCP endpoint it protects."""
