"""The one name that an installation takes in an environment. The packages of the project lie behind it.

In a wheel `fmsg`, `ledger`, `daemon` and the others are in this folder: `daemon`, for one, belongs to python-daemon. In
a checkout they lie beside it.
"""
