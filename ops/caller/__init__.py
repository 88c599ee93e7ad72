"""`fmsg-mcpd caller`: everything known of one caller, and what an operator can do for it."""
