"""`fmsg-mcpd stdio`: one address for one agent. An agent's host waits for what it imports before it answers."""

from __future__ import annotations

import os

from mcp_front.stdio.file_descriptors import claim

WAITING = """\
fmsg-mcpd stdio waits for an MCP client on standard input; agent hosts start it by themselves.
To try it by hand:   npx @modelcontextprotocol/inspector fmsg-mcpd stdio
To connect a host:   fmsg-mcpd connect --help
To see it all work:  fmsg-mcpd demo
Ctrl-C ends it."""
"""Said to a person who starts it on a terminal."""


def run() -> int:
    """Serve until the client closes its end or a signal comes; returns the exit status."""
    interactive = os.isatty(0)
    descriptors = claim()  # before anything that might print
    import gc

    gc.disable()  # what is imported stays for good; `serve_stdio` switches it on again
    import sys

    from mcp_front.stdio.opening import Opening, Prepared
    from ops.settings import SettingError, load
    from ops.version import version

    fault: str | None = None
    try:
        settings = load()
    except SettingError as error:  # The client starts and lists all the same; each call says what is wrong.
        settings, fault = load({}), str(error)
        print(f"fmsg-mcpd stdio: {error}", file=sys.stderr)
    if interactive:
        print(WAITING, file=sys.stderr)
    prepared = Prepared(
        version=version(), uploads=settings.upload_dir is not None, downloads=settings.download_dir is not None
    )
    opening = Opening(descriptors, prepared)
    opening.start()  # the client is answered while the rest is imported
    from mcp_front.stdio.lazy_imports import import_lazily

    import_lazily()
    import asyncio

    from telemetry import logs

    logs.configure(log_format=settings.log_format, level=settings.log_level or "warning", role="stdio")
    from ops.stdio_backend import serve

    return asyncio.run(serve(settings, descriptors, opening.finish(), fault=fault))
