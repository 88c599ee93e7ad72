"""`ledger.redis.batching`: commands of one moment go together, and each gets its own answer, error or cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import redis.exceptions as faults
from redis.asyncio import Redis

from ledger.redis.batching import Batching


class Watched(Redis):
    """A client that notes how commands travel."""

    pipelines = 0
    singles = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.sent_a_second = asyncio.Event()

    def pipeline(self, *args: Any, **options: Any) -> Any:
        self.pipelines += 1
        return super().pipeline(*args, **options)

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        self.singles += 1
        if self.singles == 2:
            self.sent_a_second.set()
        return await cast("Any", super()).execute_command(*args, **options)


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Watched]:
    """A client of a real server."""
    watched: Watched = Watched.from_url(redis_url)
    yield watched
    await watched.aclose()


async def test_one_command_goes_alone(client: Watched) -> None:
    assert await Batching(client).execute_command("ECHO", "a") == b"a"
    assert (client.singles, client.pipelines) == (1, 0)


async def test_commands_of_one_moment_go_together_each_with_its_answer(client: Watched) -> None:
    batching = Batching(client)
    answers = await asyncio.gather(*(batching.execute_command("ECHO", str(number)) for number in range(50)))
    assert answers == [str(number).encode() for number in range(50)]
    assert client.pipelines == 1


async def test_more_than_a_batch_is_sent_in_several(client: Watched) -> None:
    batching = Batching(client, lanes=1, batch=8)
    answers = await asyncio.gather(*(batching.execute_command("ECHO", str(number)) for number in range(20)))
    assert len(answers) == 20
    assert client.pipelines == 3


async def test_an_error_goes_to_the_command_that_made_it(client: Watched) -> None:
    batching = Batching(client)
    answers: Any = await asyncio.gather(
        batching.execute_command("ECHO", "a"),
        batching.execute_command("NONSENSE"),
        batching.execute_command("EVALSHA", "0" * 40, 0),
        return_exceptions=True,
    )
    good, bad, missing = answers
    assert good == b"a"
    assert isinstance(bad, faults.ResponseError)
    assert isinstance(missing, faults.NoScriptError)


async def test_a_lost_connection_fails_all_that_it_carried_and_nothing_after(client: Watched) -> None:
    batching = Batching(client, lanes=1)
    await batching.execute_command("PING")
    answers = await asyncio.gather(
        batching.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"),
        batching.execute_command("ECHO", "a"),
        batching.execute_command("DEBUG", "SLEEP", "0"),
        return_exceptions=True,
    )
    assert any(isinstance(answer, faults.ConnectionError) for answer in answers)
    assert await batching.execute_command("ECHO", "b") == b"b"


async def test_who_is_cancelled_takes_nothing_from_the_others(client: Watched) -> None:
    batching = Batching(client)
    first = asyncio.create_task(batching.execute_command("ECHO", "a"))
    second = asyncio.create_task(batching.execute_command("ECHO", "b"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == b"b"
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await batching.execute_command("ECHO", "c") == b"c"


async def test_closing_ends_what_waits(client: Watched) -> None:
    batching = Batching(client, lanes=1)
    await batching.execute_command("PING")
    blocked = asyncio.create_task(batching.execute_command("BLPOP", "nothing", "2"))
    async with asyncio.timeout(10):
        await asyncio.create_task(client.sent_a_second.wait())
    queued = asyncio.create_task(batching.execute_command("PING"))
    await asyncio.sleep(0)
    await batching.aclose()
    for task in (blocked, queued):
        with pytest.raises(faults.ConnectionError):
            await task
    with pytest.raises(faults.ConnectionError):
        await batching.execute_command("PING")
