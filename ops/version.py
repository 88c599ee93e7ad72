"""The version of the installed distribution."""

from __future__ import annotations

import functools


@functools.cache
def version() -> str:
    """As in `pyproject.toml`; ``0+unknown`` where the project runs without being installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("fmsg-mcpd")
    except PackageNotFoundError:
        return "0+unknown"
