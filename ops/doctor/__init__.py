"""`fmsg-mcpd doctor`: tries everything that has to work, and says of each thing what came and what to do."""
