from __future__ import annotations

from ledger.memory import MemoryActivations, MemoryFleet
from ledger.port import Member
from ledger.values import CallerKey
from workers.retention import Retention

ANN = CallerKey("a" * 32)
BEN = CallerKey("b" * 32)


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


async def test_who_is_active_in_name_only_is_retired_and_dead_daemons_hold_nothing() -> None:
    clock = Clock()
    activations = MemoryActivations(ttl_s=10_000.0, clock=clock)
    fleet = MemoryFleet(heartbeat_ttl_s=10.0, clock=clock)
    retention = Retention(activations, fleet, abandoned_after_s=600.0, clock=clock)
    for caller, life_s in [(ANN, 60.0), (BEN, 5000.0)]:
        await activations.activate(
            caller, address="@a@b.test", api_url="u", token="t", token_expires_at_s=clock.now_s + life_s
        )
    await fleet.beat(Member(id="d1", name="d1", since_s=0.0))
    await fleet.take([ANN], "d1", over={})

    assert await retention.run() == "done"
    assert set(await activations.active()) == {ANN, BEN}

    clock.now_s += 599
    await retention.run()
    assert set(await activations.active()) == {ANN, BEN}, "asked for not long ago"

    clock.now_s += 2
    await retention.run()
    assert set(await activations.active()) == {BEN}, "a token that lasts is worth keeping"
    assert await fleet.sweep() == 0, "swept already"
