from __future__ import annotations

import asyncio

from mcp_front.drain import Drain


async def test_tasks_and_listeners_hear_of_the_end() -> None:
    drain = Drain()
    heard: list[str] = []
    drain.listen(lambda: heard.append("one"))
    off = drain.listen(lambda: heard.append("two"))
    off()
    off()
    waiting = asyncio.ensure_future(drain.wait())
    await asyncio.sleep(0)
    drain.set()
    assert heard == ["one"]
    assert await waiting
    assert drain.is_set()
