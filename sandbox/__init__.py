"""An FMSG-003 host, or several that federate, in one process: for trying, testing and load.

`host` serves one, `run` several. `mail`, `reactions` and `courier` are what a host does; `state`, `journal`, `records`
and `accounts` what it keeps; `events` and `sockets` how it tells; `http` and the ``routes_…`` how it is asked; `render`
and `wire` how it answers. `switches` has each surprise of a running host as a field; `control`, `faults` and
`listening` are for whoever wants it to fail.
"""
