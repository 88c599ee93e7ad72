"""`fmsg-mcpd status`: the whole deployment at a glance, problems first."""
