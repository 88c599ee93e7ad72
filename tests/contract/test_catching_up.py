"""Catching up through the real client, against hosts of every kind that the sandbox plays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from fmsg.http import HostHttp
from fmsg.message import Draft
from fmsg.webapi import WebApi
from ledger.catch_up import CaughtUp, catch_up
from ledger.memory import MemoryLedger
from ledger.values import START, CallerKey
from sandbox.host import SandboxHost, serve
from sandbox.switches import OLDER, PLAIN, Switches
from tests.key_tokens import KeyTokens

ANN = "@ann@here.test"
BEN = "@ben@here.test"
CAM = "@cam@there.test"
CALLER = CallerKey("a" * 32)

KINDS = {"current": Switches(), "older": OLDER, "plain": PLAIN}


class Clock:
    """Moves only when told, so that whole conversations happen in one second of the host's ``Date``."""

    now_s = 1_780_000_000.25

    def __call__(self) -> float:
        return self.now_s


class Place(NamedTuple):
    """A host, its clock, and the Web API as Ann and as Ben."""

    host: SandboxHost
    clock: Clock
    ann: WebApi
    ben: WebApi
    ledger: MemoryLedger

    async def compare(self, *, min_pages: int = 3) -> CaughtUp:
        return await catch_up(self.ann, self.ledger, CALLER, ANN, source="reconcile", min_pages=min_pages)

    async def roots(self) -> dict[int, int]:
        return {entry.id: entry.root for entry in (await self.ledger.read(CALLER, START, 1000)).entries}


@pytest.fixture(params=KINDS)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    clock = Clock()
    host = SandboxHost("here.test", switches=KINDS[request.param], clock=clock)
    async with serve(host) as url, HostHttp(url) as http:
        keys = [host.control.create_key(address) for address in (ANN, BEN)]
        ann, ben = (WebApi(http, KeyTokens(http, key, clock=clock)) for key in keys)
        yield Place(host, clock, ann, ben, MemoryLedger(clock=clock))


def draft(from_: str, to: str, *, pid: int | None = None) -> Draft:
    return Draft(from_=from_, to=(to,), type="text/plain", size=2, data="hi", pid=pid)


async def test_what_came_in_the_second_of_the_beginning_is_old_news_all_the_same(place: Place) -> None:
    for _ in range(30):
        place.host.control.deliver(CAM, [ANN])
    assert (await place.compare()).began
    assert (await place.compare()).new == ()
    new = place.host.control.deliver(CAM, [ANN])
    assert [one.id for one in (await place.compare()).new] == [new]


async def test_a_draft_sent_late_is_found_wherever_it_lies(place: Place) -> None:
    late = await place.ben.create_draft(draft(BEN, ANN))
    for _ in range(150):
        place.host.control.deliver(CAM, [ANN])
    await place.compare()
    assert (await place.compare()).new == ()
    place.clock.now_s += 3600
    await place.ben.send(late)
    assert [one.id for one in (await place.compare()).new] == [late]


async def test_a_recipient_added_later_finds_the_old_message(place: Place) -> None:
    old = await place.ben.create_draft(draft(BEN, CAM))
    await place.ben.send(old)
    place.host.control.deliver(CAM, [ANN])
    await place.compare()
    place.clock.now_s += 3600
    await place.ben.add_recipients(old, [ANN])
    caught = await place.compare()
    assert [one.id for one in caught.new] == [old]
    assert caught.new[0].sent_at_s >= 1_780_003_600


async def test_a_conversation_has_one_root(place: Place) -> None:
    root = place.host.control.deliver(BEN, [ANN])
    await place.compare()
    last = root
    for _ in range(3):
        mine = await place.ann.create_draft(draft(ANN, BEN, pid=last))
        await place.ann.send(mine)
        last = await place.ben.create_draft(draft(BEN, ANN, pid=mine))
        await place.ben.send(last)
    place.clock.now_s += 1
    caught = await place.compare()
    assert len(caught.new) == 3
    assert set((await place.roots()).values()) == {root}


async def test_a_thread_one_came_into_late_has_one_root_too(place: Place) -> None:
    """Ann was added to one reply in the middle of a thread, and gets two more after it."""
    hidden = place.host.control.deliver(BEN, [CAM])
    first = place.host.control.deliver(CAM, [BEN], pid=hidden)
    await place.compare()
    place.clock.now_s += 1
    await place.ben.add_recipients(first, [ANN])
    await place.compare()
    replies = [place.host.control.deliver(BEN, [ANN, CAM], pid=first) for _ in range(2)]
    place.clock.now_s += 1
    await place.compare()
    roots = await place.roots()
    assert set(roots) == {first, *replies}
    assert len(set(roots.values())) == 1
    assert set(roots.values()) <= {hidden, first}


async def test_drafts_addressed_to_the_caller_are_never_marked(place: Place) -> None:
    for _ in range(40):
        await place.ben.create_draft(draft(BEN, ANN))
    came = place.host.control.deliver(CAM, [ANN])
    await place.compare()
    place.clock.now_s += 1
    assert (await place.compare(min_pages=1)).new == ()
    assert set(await place.roots()) == {came}
