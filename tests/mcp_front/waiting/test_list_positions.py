"""What is remembered of positions before the ledger."""

from __future__ import annotations

from ledger.memory import MemoryDocuments
from ledger.values import CallerKey
from mcp_front.waiting.list_positions import KIND, MAX_STEPS, NAME, Step, load_step, save_step

ALICE = CallerKey("a" * 32)


def documents() -> MemoryDocuments:
    """An empty store."""
    return MemoryDocuments(clock=lambda: 0.0)


async def test_a_position_is_remembered_with_its_place() -> None:
    """Handed out, found again, and the last word counts."""
    store = documents()
    assert await load_step(store, ALICE, 7) is None
    assert await save_step(store, ALICE, 7, Step("epoch", 70))
    assert await save_step(store, ALICE, 7, Step("epoch", 71))
    assert await load_step(store, ALICE, 7) == Step("epoch", 71)


async def test_the_newest_positions_are_remembered() -> None:
    """Very many positions: the newest stay, and what is stored stays small."""
    store = documents()
    for message_id in range(1, MAX_STEPS + 11):
        await save_step(store, ALICE, message_id, Step("epoch", message_id))
    assert await load_step(store, ALICE, 10) is None
    assert await load_step(store, ALICE, 11) == Step("epoch", 11)
    assert len((await store.load(ALICE, KIND, NAME)).data) < 4_000


async def test_somebody_elses_writing_is_kept() -> None:
    """Two replicas store at the same time: both positions are there afterwards."""
    store = documents()
    plain = store.store

    async def slow(*arguments: object, **more: object) -> bool:
        store.store = plain  # type: ignore[method-assign]
        await save_step(store, ALICE, 8, Step("epoch"))
        return await plain(*arguments, **more)  # type: ignore[arg-type]

    store.store = slow  # type: ignore[method-assign]
    assert await save_step(store, ALICE, 7, Step("epoch"))
    assert await load_step(store, ALICE, 7)
    assert await load_step(store, ALICE, 8)


async def test_a_store_that_is_never_quiet_costs_the_memory_not_the_wait() -> None:
    """Every attempt meets another writer: it is given up, and says so."""
    store = documents()

    async def taken(*_: object, **__: object) -> bool:
        return False

    store.store = taken  # type: ignore[method-assign]
    assert not await save_step(store, ALICE, 7, Step("epoch"))


async def test_what_another_version_wrote_is_forgotten() -> None:
    """Unreadable data: as if there were none."""
    store = documents()
    await store.store(ALICE, KIND, NAME, b"\xc1", expected=0, ttl_s=9.0)
    assert await load_step(store, ALICE, 7) is None
