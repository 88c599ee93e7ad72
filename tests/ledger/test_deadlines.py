"""Whoever asks a store that hangs may give up sooner than the store does."""

from __future__ import annotations

import asyncio

import pytest

from ledger.deadlines import LEAST_S, GaveUp, answered_by, answered_within
from ledger.port import LedgerUnavailable
from ledger.redis.scripts import Scripts
from tests.fake_redis import FreezingTopology
from tests.mcp_front.waiting.virtual import run


class Hanging:
    """A server that never answers."""

    async def execute_command(self, *args: object) -> object:
        return await asyncio.get_running_loop().create_future()


async def gave_up_at(scripts: Scripts) -> float:
    """The loop's time when a command that hangs was given up."""
    with pytest.raises(LedgerUnavailable, match="no answer while it was of use"):
        await scripts.command("GET", "x", idempotent=True)
    return asyncio.get_running_loop().time()


def test_a_command_is_given_up_when_its_answer_is_of_no_use_any_more() -> None:
    async def scenario() -> None:
        with answered_within(3.0):
            assert await gave_up_at(Scripts(Hanging())) == pytest.approx(3.0)

    run(scenario())


def test_a_command_that_waits_for_its_turn_is_given_up_too() -> None:
    """All turns are taken by commands that hang."""

    async def scenario() -> None:
        scripts = Scripts(Hanging(), max_concurrent=1)
        first = asyncio.create_task(scripts.command("GET", "x", idempotent=True))
        await asyncio.sleep(0)
        with answered_within(3.0):
            assert await gave_up_at(scripts) == pytest.approx(3.0)
        first.cancel()
        await asyncio.wait([first])

    run(scenario())


def test_the_sooner_of_two_counts() -> None:
    async def scenario() -> None:
        with answered_within(3.0):
            with answered_within(1.5):
                assert await gave_up_at(Scripts(Hanging())) == pytest.approx(1.5)
            with answered_within(9.0):
                assert await gave_up_at(Scripts(Hanging())) == pytest.approx(3.0)

    run(scenario())


def test_a_server_that_answers_is_heard_however_late_it_was_asked() -> None:
    """The host took long before: that is no reason to take the store for dead."""

    async def scenario() -> None:
        topology = FreezingTopology()
        scripts = Scripts(topology.commands)
        with answered_by(1.0):
            await asyncio.sleep(5.0)
            assert await scripts.command("GET", "x", idempotent=True) is None
            topology.frozen = True
            assert await gave_up_at(scripts) == pytest.approx(5.0 + LEAST_S)
        topology.frozen = False
        await topology.aclose()

    run(scenario())


class Slow:
    """A server that answers everybody but those who ask for ``x``."""

    async def execute_command(self, *args: object) -> object:
        if args[-1] == "x":
            return await asyncio.get_running_loop().create_future()
        return b"value"


def test_a_store_that_answers_others_is_not_away_because_one_command_is_late() -> None:
    """An overloaded process must not take a healthy store for a dead one: what it does then costs more still."""

    async def scenario() -> None:
        scripts = Scripts(Slow())
        with answered_within(1.5), pytest.raises(LedgerUnavailable) as silent:
            await scripts.command("GET", "x", idempotent=True)
        assert not isinstance(silent.value, GaveUp)
        with answered_within(1.5):
            late = asyncio.create_task(scripts.command("GET", "x", idempotent=True))
        await asyncio.sleep(1.0)
        await scripts.command("GET", "y", idempotent=True)
        with pytest.raises(GaveUp):
            await late

    run(scenario())
