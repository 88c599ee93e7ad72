"""The last reset of a ledger, as every replica knows it."""

from __future__ import annotations

from ledger.memory import MemoryDocuments
from ledger.values import CallerKey
from mcp_front.waiting.resets import KIND, NAME, load_reset, save_reset

ALICE = CallerKey("a" * 32)


async def test_other_replicas_know_of_the_last_reset() -> None:
    """Stored and read back; none at first."""
    store = MemoryDocuments(clock=lambda: 0.0)
    assert await load_reset(store, ALICE, now_s=40.0) is None
    await save_reset(store, ALICE, 10.0)
    await save_reset(store, ALICE, 30.0)
    assert await load_reset(store, ALICE, now_s=40.0) == 30.0


async def test_a_replica_that_saw_an_earlier_reset_changes_nothing() -> None:
    """Replicas notice a reset one after the other, and one may have noticed the next before."""
    store = MemoryDocuments(clock=lambda: 0.0)
    await save_reset(store, ALICE, 30.0)
    await save_reset(store, ALICE, 10.0)
    assert await load_reset(store, ALICE, now_s=40.0) == 30.0


async def test_a_record_that_cannot_be_read_counts_as_a_reset_now() -> None:
    """Taken for none, a doubtful message would be lost. It is replaced, so that later positions are not in doubt."""
    store = MemoryDocuments(clock=lambda: 0.0)
    await store.store(ALICE, KIND, NAME, b"\xc1", expected=0, ttl_s=9.0)
    assert await load_reset(store, ALICE, now_s=1e9) == 1e9
    assert await load_reset(store, ALICE, now_s=2e9) == 1e9
