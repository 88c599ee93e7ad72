"""`fmsg-mcpd status`: the whole deployment, problems first; once, live, or as JSON."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
from rich.console import Console

from ledger.port import LedgerError
from ops import interrupt, parts
from ops.own_redis import settings_of
from ops.settings import SettingError, Settings, load
from ops.status.picture import Picture, take_picture
from ops.status.problems import is_well
from ops.status.show import plain, pretty, to_json
from ops.terminal import in_colour

WITHIN_S = 30.0
"""How long a look may take. 50,000 callers take some seconds; a Redis that needs longer hangs."""

EVERY_S = 2.0
"""Between looks of ``--watch``, unless they take long."""

REST = 5.0
"""A watch rests so many times as long as a look takes, so that it does not keep Redis busy."""

Look = Callable[[], Awaitable[Picture]]


class NoPicture(Exception):
    """Redis cannot be asked, so there is no picture. The text says why and what to do."""

    def __init__(self, error: Exception) -> None:
        why = str(error) or f"Redis: no answer within {WITHIN_S:g} s."
        more = "" if "doctor --only redis" in why else " `fmsg-mcpd doctor --only redis` says more."
        super().__init__(f"{why}{more}")


WELL, PROBLEM, UNKNOWN = 0, 1, 2
"""Exit statuses: nothing worse than a note, a problem, and no way to tell. Monitoring goes by them."""


class StatusOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    watch: bool = False
    as_json: bool = False
    every_s: float = EVERY_S
    data_dir: str | None = None
    forget_silent: bool = False


def status(options: StatusOptions) -> int:
    """Show the deployment; returns the exit status."""
    # The library's log lines would be printed in between; what they say is in the picture.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        return interrupt.run(_run(settings_of(load(), options.data_dir), options))
    except (SettingError, ValueError) as error:
        print(f"fmsg-mcpd status: {error}", file=sys.stderr)
        return UNKNOWN
    except KeyboardInterrupt:
        return 0 if options.watch else 130


async def _run(settings: Settings, options: StatusOptions) -> int:
    sealed = settings.seal_key is None
    store = parts.redis_store(parts.with_seal_key(settings))
    queue_url = settings.queue_redis_url or settings.need_redis_url()

    async def look() -> Picture:
        try:
            async with asyncio.timeout(WITHIN_S):
                return await take_picture(store, queue_url=queue_url, sealed=sealed)
        except (LedgerError, TimeoutError) as error:
            raise NoPicture(error) from None

    try:
        if options.forget_silent:
            for process, _ in (await look()).silent().values():
                await store.processes.withdraw(process.id)
        if options.watch:
            await (_watch_json if options.as_json else _watch)(look, every_s=options.every_s)
        picture = await look()
    except NoPicture as error:
        running = "" if options.data_dir is None else f"Does `fmsg-mcpd up --data-dir {options.data_dir}` run? "
        print(f"fmsg-mcpd status: {running}{error}", file=sys.stderr)
        return UNKNOWN
    finally:
        await store.topology.aclose()
    if options.as_json:
        print(to_json(picture).decode())
    elif in_colour():
        Console().print(pretty(picture))
    else:
        print(plain(picture))
    return WELL if is_well(picture) else PROBLEM


async def pictures(look: Look, *, every_s: float) -> AsyncIterator[Picture | NoPicture]:
    """Pictures, one after the other, without end. Where one cannot be taken, the error comes in its place."""
    while True:
        began_s = time.perf_counter()
        try:
            yield await look()
        except NoPicture as error:
            yield error
        await asyncio.sleep(max(every_s, REST * (time.perf_counter() - began_s)))


async def _watch(look: Look, *, every_s: float) -> None:
    """Tables on the terminal until interrupted."""
    from rich.live import Live
    from rich.text import Text

    with Live(Text("Looking …"), screen=True, auto_refresh=False) as live:
        async for picture in pictures(look, every_s=every_s):
            shown = pretty(picture) if isinstance(picture, Picture) else Text(str(picture), style="bold red")
            live.update(shown, refresh=True)


async def _watch_json(look: Look, *, every_s: float) -> None:
    """A picture on each line until interrupted."""
    async for picture in pictures(look, every_s=every_s):
        told = msgspec.Raw(to_json(picture)) if isinstance(picture, Picture) else {"error": str(picture)}
        print(msgspec.json.format(msgspec.json.encode(told), indent=-1).decode(), flush=True)
