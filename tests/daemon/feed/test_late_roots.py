"""Roots that a push did not bring."""

from __future__ import annotations

import pytest

from daemon.feed.late_roots import DELAYS_S, MAX_MISSING, LateRoots
from ledger.memory import MemoryLedger
from ledger.port import NoLedger
from ledger.values import Baseline, CallerKey, Seen
from tests.ledger.fake_host import ME, FakeHost

CALLER = CallerKey("c" * 32)


async def begun(host: FakeHost, *messages: tuple[int, int]) -> tuple[MemoryLedger, LateRoots]:
    """A ledger with replies (id, pid) that lack a root, and the search for them."""
    ledger, roots = MemoryLedger(), LateRoots()
    seen = [Seen(id=id_, pid=pid, root=0, from_="@ann@there.test") for id_, pid in messages]
    await ledger.begin(CALLER, (), Baseline())
    await ledger.append(CALLER, seen, "push")
    roots.add(seen)
    for id_, pid in messages:
        host.put(id_, pid=pid)
    return ledger, roots


async def rooted(ledger: MemoryLedger) -> dict[int, int]:
    """The roots by id."""
    return {entry.id: entry.root for entry in (await ledger.read(CALLER, 0, 100)).entries}


async def test_roots_that_are_found_are_set() -> None:
    host = FakeHost()
    host.put(1, from_=ME)
    ledger, roots = await begun(host, (2, 1), (3, 2))
    assert await roots.find(host, ledger, CALLER) is None
    assert (await rooted(ledger), len(roots)) == ({2: 1, 3: 1}, 0)


async def test_a_root_that_cannot_be_found_is_asked_for_again_and_in_the_end_given_up() -> None:
    host = FakeHost()
    ledger, roots = await begun(host, (2, 1))
    delays = [await roots.find(host, ledger, CALLER) for _ in DELAYS_S]
    assert delays == list(DELAYS_S)
    assert await roots.find(host, ledger, CALLER) is None
    assert (await rooted(ledger), len(roots)) == ({2: 2}, 0)


async def test_a_new_message_starts_the_tries_anew() -> None:
    host = FakeHost()
    ledger, roots = await begun(host, (2, 1))
    for _ in DELAYS_S:
        await roots.find(host, ledger, CALLER)
    roots.add([Seen(id=5, pid=1, root=0, from_="@ann@there.test")])
    assert await roots.find(host, ledger, CALLER) == DELAYS_S[0]


async def test_a_store_that_fails_makes_nobody_forget() -> None:
    host = FakeHost()
    ledger, roots = await begun(host, (2, 1))
    await ledger.forget(CALLER)
    with pytest.raises(NoLedger):
        await roots.find(host, ledger, CALLER)
    assert len(roots) == 1


def test_what_is_kept_is_bounded() -> None:
    roots = LateRoots()
    roots.add(Seen(id=id_, pid=1, root=0, from_="@a@b.test") for id_ in range(2, 10 * MAX_MISSING))
    assert len(roots) == MAX_MISSING
