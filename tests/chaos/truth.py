"""What the host says in the end that everybody received: asked of its lists, page by page, by each address itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

import msgspec

from fmsg.address import fold
from fmsg.http import HostHttp
from fmsg.message import Message, available_at_s
from fmsg.webapi import WebApi
from tests.chaos.verdict import Known, roots_of
from tests.key_tokens import KeyTokens

PAGE = 100
AT_ONCE = 16
"""Addresses asked for at the same time."""


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """Messages by address and id, and how many messages bear each topic."""

    listed: dict[str, dict[int, Known]]
    topics: Counter[str]


async def truth(api_url: str, keys: Mapping[str, str]) -> Truth:
    """Ask for every address with its key. The host must be well and nothing be on its way any more."""
    slots = asyncio.Semaphore(AT_ONCE)

    async with HostHttp(api_url) as http:

        async def everything(key: str) -> list[Message]:
            async with slots:
                api, found = WebApi(http, KeyTokens(http, key)), list[Message]()
                while True:
                    page = await api.list_received(limit=PAGE, offset=len(found))
                    found += page.messages
                    if len(page.messages) < PAGE:
                        return [message for message in found if not message.is_draft]

        lists = await asyncio.gather(*(everything(key) for key in keys.values()))
    messages = {message.id: message for listed in lists for message in listed}
    roots = roots_of({message.id: message.pid or None for message in messages.values()})
    return Truth(
        listed={
            address: {message.id: _known(message, address, roots[message.id]) for message in listed}
            for address, listed in zip(keys, lists, strict=True)
        },
        topics=Counter(message.topic or "" for message in messages.values()),
    )


def _known(message: Message, address: str, root: int) -> Known:
    return Known(
        id=message.id,
        root=root,
        from_=fold(message.from_),
        available_at_s=available_at_s(message, address) or 0.0,
        no_reply=message.no_reply,
        reaction=message.is_reaction,
    )
