"""Changes of ledgers, as far as positions have to know of them."""

from __future__ import annotations

from ledger.memory import MemoryDocuments
from ledger.values import CallerKey
from mcp_front.waiting.resets import KIND, NAME, TTL_S, Unrest, load_unrest, save_unrest

ALICE = CallerKey("a" * 32)


def test_changes_that_touch_are_one() -> None:
    """A store that flaps: one time of doubt."""
    assert Unrest(10.0, 20.0).joined(Unrest(15.0, 30.0)) == Unrest(10.0, 30.0)
    assert Unrest(10.0, 20.0).joined(None) == Unrest(10.0, 20.0)


def test_of_changes_that_lie_apart_the_later_counts() -> None:
    """A flush last week and one now: nothing in between is in doubt."""
    assert Unrest(10.0, 20.0).joined(Unrest(500.0, 600.0)) == Unrest(500.0, 600.0)
    assert Unrest(500.0, 600.0).joined(Unrest(10.0, 20.0)) == Unrest(500.0, 600.0)


async def test_other_replicas_hear_of_it() -> None:
    """Stored and read back."""
    store = MemoryDocuments(clock=lambda: 0.0)
    assert await load_unrest(store, ALICE, now_s=40.0) is None
    await save_unrest(store, ALICE, Unrest(10.0, 20.0))
    await save_unrest(store, ALICE, Unrest(15.0, 30.0))
    assert await load_unrest(store, ALICE, now_s=40.0) == Unrest(15.0, 30.0)


async def test_one_that_cannot_be_read_was_at_any_time_until_now() -> None:
    """Taken for none, a doubtful message would be lost. It is put right, so that later positions are not in doubt."""
    store = MemoryDocuments(clock=lambda: 0.0)
    await store.store(ALICE, KIND, NAME, b"\xc1", expected=0, ttl_s=9.0)
    ever = Unrest(1e9 - TTL_S, 1e9)
    assert await load_unrest(store, ALICE, now_s=1e9) == ever
    assert await load_unrest(store, ALICE, now_s=2e9) == ever
