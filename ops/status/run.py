"""`fmsg-mcpd status`: the whole deployment at a glance, problems first; once, live, or as JSON."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from ledger.port import LedgerError
from ops import interrupt, parts
from ops.settings import SettingError, Settings, load
from ops.status.picture import Picture, take_picture
from ops.status.show import plain, pretty, to_json

WITHIN_S = 30.0
"""How long a look may take: a Redis that hangs is said so, and 50,000 callers are looked through in some seconds."""

EVERY_S = 2.0
"""Between looks of ``--watch``, unless they take long."""

REST = 5.0
"""A watch rests so many times as long as a look takes: it must not be what keeps Redis busy."""

Look = Callable[[], Awaitable[Picture]]


class Unreadable(Exception):
    """There is no picture, since Redis cannot be asked. The text says why and what to do."""

    def __init__(self, error: Exception) -> None:
        why = str(error) or f"Redis: no answer within {WITHIN_S:g} s."
        super().__init__(f"{why} `fmsg-mcpd doctor --only redis` says more.")


def status(*, watch: bool, as_json: bool, every_s: float = EVERY_S) -> int:
    """Show the deployment; the exit status: 0, 1 where it cannot be looked at, 2 for settings that cannot be."""
    # What libraries log is told in what is shown; without a handler Python would print it in between.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        return interrupt.run(_run(load(), watch=watch, as_json=as_json, every_s=every_s))
    except (SettingError, ValueError) as error:
        print(f"fmsg-mcpd status: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0 if watch else 130


async def _run(settings: Settings, *, watch: bool, as_json: bool, every_s: float) -> int:
    store = parts.redis_store(settings)
    queue_url = settings.queue_redis_url or settings.need_redis_url()

    async def look() -> Picture:
        try:
            async with asyncio.timeout(WITHIN_S):
                return await take_picture(store, queue_url=queue_url)
        except (LedgerError, TimeoutError) as error:
            raise Unreadable(error) from None

    try:
        if watch:
            await (_watch_json if as_json else _watch)(look, every_s=every_s)
        picture = await look()
    except Unreadable as error:
        print(f"fmsg-mcpd status: {error}", file=sys.stderr)
        return 1
    finally:
        await store.topology.aclose()
    print(to_json(picture).decode() if as_json else plain(picture))
    return 0


async def pictures(look: Look, *, every_s: float) -> AsyncIterator[Picture | Unreadable]:
    """A picture now and then, for ever; what kept one from being taken in its place."""
    while True:
        began_s = time.perf_counter()
        try:
            yield await look()
        except Unreadable as error:
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
