"""An FMSG-003 host, or several that federate, in one process: for trying, testing and load.

`host` serves them. `routes` and `sockets` are how a host is asked and tells, `messages` and `federation` what it does,
`core` its parts together, `store`, `records` and `accounts` what it keeps. `render` and `wire` shape its answers.
`switches` has each surprise of a running host as a field. `control` and `faults` make it fail.
"""
