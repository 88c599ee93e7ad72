"""`fmsg-mcpd bench`: what a waiting agent costs, and how quickly it is woken, measured on processes of their own."""
