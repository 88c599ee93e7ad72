from __future__ import annotations

from ledger.memory import MemoryProcesses
from ledger.operators import Process, in_order


def process(id_: str, role: str) -> Process:
    return Process(id=id_, role=role, name="box", version="1", since_s=1.0)


async def test_a_process_is_remembered_with_the_time_of_its_last_word() -> None:
    now_s = 0.0
    processes = MemoryProcesses(ttl_s=20.0, clock=lambda: now_s)
    await processes.announce(process("1", "front"))
    now_s = 19.0
    assert [one.heard_at_s for one in await processes.present()] == [0.0]
    now_s = 20.0
    assert list(await processes.present()) == []


def test_processes_are_ordered_by_role() -> None:
    given = [process("1", "worker"), process("3", "daemon"), process("2", "daemon")]
    assert [one.id for one in in_order(given)] == ["2", "3", "1"]
