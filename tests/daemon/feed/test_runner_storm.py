"""Random trouble for some feeds at once: in the end every message is in the ledger of whom it was for, once."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest

from tests.daemon.world import Agent, Running, World

STEPS = 120
"""Of trouble and messages. Enough for every pair of troubles to meet in some of the seeds."""


class Storm:
    """What can happen, and what must have arrived in the end."""

    def __init__(self, world: World, rng: random.Random, agents: list[Agent], bob: Agent) -> None:
        self.world = world
        self.rng = rng
        self.agents = agents
        self.bob = bob
        self.expected: dict[str, set[int]] = {agent.address: set() for agent in agents}
        self.drafts: list[tuple[Agent, int]] = []
        self.parents: dict[int, int | None] = {}

    async def step(self) -> None:
        """Something happens to somebody."""
        agent = self.rng.choice(self.agents)
        happens = self.rng.choice(
            [
                *[self.message] * 6,
                *[self.burst] * 2,
                *[self.draft] * 2,
                *[self.send_draft] * 2,
                self.add,
                self.drop,
                self.lose,
                self.refuse,
                self.throttle,
                self.expire,
                self.forget,
                self.away,
                self.reject,
                *[self.pause] * 3,
            ]
        )
        await happens(agent)

    async def message(self, agent: Agent) -> None:
        pid = self.rng.choice([None, *list(self.parents)[-5:]])
        id_ = await self.bob.send(agent, self.bob, pid=pid)
        self.parents[id_] = pid
        self.expected[agent.address].add(id_)

    def root_of(self, id_: int, pid: int | None) -> int:
        """The root of a message's thread."""
        while pid is not None:
            id_, pid = pid, self.parents.get(pid)
        return id_

    async def burst(self, agent: Agent) -> None:
        self.expected[agent.address].update(self.world.deliver(agent) for _ in range(self.rng.randint(2, 30)))

    async def draft(self, agent: Agent) -> None:
        self.drafts.append((agent, await self.bob.draft(agent)))

    async def send_draft(self, _: Agent) -> None:
        if self.drafts:
            agent, id_ = self.drafts.pop(self.rng.randrange(len(self.drafts)))
            await self.bob.api.send(id_)
            self.expected[agent.address].add(id_)

    async def add(self, agent: Agent) -> None:
        root = await self.bob.send(self.bob)
        await self.bob.api.add_recipients(root, [agent.address])
        self.expected[agent.address].add(root)

    async def drop(self, agent: Agent) -> None:
        self.world.host.control.drop_sockets(agent.address, close_frame=self.rng.random() < 0.5)

    async def lose(self, agent: Agent) -> None:
        self.world.host.control.lose_events(self.rng.randint(1, 5), address=agent.address)

    async def refuse(self, _: Agent) -> None:
        route = self.rng.choice(["list", "ws", "thread_messages"])
        self.world.host.control.fail_next(route, times=self.rng.randint(1, 4), status=self.rng.choice([500, 502, 503]))

    async def throttle(self, _: Agent) -> None:
        self.world.host.control.fail_next("list", status=429, text="slow down")

    async def expire(self, agent: Agent) -> None:
        self.world.host.control.expire_tokens(agent.address)
        if self.rng.random() < 0.5:
            await agent.ask()

    async def forget(self, agent: Agent) -> None:
        await self.world.store.ledger.forget(agent.key)

    async def away(self, agent: Agent) -> None:
        with self.world.store_away():
            await self.burst(agent)
            await self.pause(agent)

    async def reject(self, agent: Agent) -> None:
        self.world.host.control.reject_upgrades(self.rng.randint(1, 6))
        await self.drop(agent)

    async def pause(self, _: Agent) -> None:
        """Let time go by: how long is part of the storm, nothing is waited for."""
        await asyncio.sleep(self.rng.uniform(0.0, 0.05))


@pytest.mark.parametrize("seed", range(6))
async def test_nothing_is_lost_in_a_storm(world: World, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(seed)
    agents = [await world.agent(f"agent{number}") for number in range(3)]
    bob = await world.agent("bob", ask=False)
    running: list[Running] = [await world.daemon("one")]
    storm = Storm(world, rng, agents, bob)
    for step in range(STEPS):
        await storm.step()
        if step == STEPS // 3:
            running.append(await world.daemon("two"))
        if step == 2 * STEPS // 3:
            await running[0].drain()
    world.host.control.clear_faults()
    for agent in agents:
        await agent.ask()
    for agent in agents:
        await agent.until("live", daemon=running[1].daemon.id)

        async def complete(agent: Agent = agent) -> bool:
            state = await world.store.ledger.state(agent.key)
            entries = await agent.entries()
            ids = [entry.id for entry in entries]
            assert len(set(ids)) == len(ids)
            # A ledger begun anew takes over the newest 64; older ones are the host's business.
            newest = set(sorted(storm.expected[agent.address])[-60:])
            for entry in entries:
                assert entry.root in (0, storm.root_of(entry.id, entry.pid))
            return state is not None and set(ids) >= newest

        await world.bell.until(complete)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
