"""`fmsg-mcpd stdio`: one address for one agent. What it imports before it answers is what somebody waits for."""

from __future__ import annotations

from mcp_front.stdio.file_descriptors import claim


def run() -> int:
    """Serve until the client closes its end or a signal comes; returns the exit status."""
    wire = claim()  # before anything that might print
    import gc

    gc.disable()  # what is imported stays for good; `serve_stdio` switches it on again
    import sys

    from mcp_front.stdio.early_initialize import Greeter
    from ops.settings import SettingError, load
    from ops.version import version

    try:
        settings = load()
    except SettingError as error:
        print(f"fmsg-mcpd stdio: {error}", file=sys.stderr)
        return 2
    greeter = Greeter(wire, version=version())
    greeter.start()  # the client is answered while the rest is imported
    from mcp_front.stdio.lazy_imports import import_lean

    import_lean()
    import asyncio

    from telemetry import logs

    logs.configure(log_format=settings.log_format, level=settings.log_level, role="stdio")
    from ops.stdio_backend import serve

    return asyncio.run(serve(settings, wire, greeter.finish()))
