"""An FMSG-003 host, or several that federate, in one process: for trying, testing and load."""
