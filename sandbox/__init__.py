"""An FMSG-003 v0.2.0 host in one process, for trying, testing, chaos and load. Imports only `fmsg`."""
