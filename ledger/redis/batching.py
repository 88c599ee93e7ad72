"""Commands of one turn of the event loop travel to Redis together.

A command of its own costs redis-py a connection taken from the pool and looked at, a write, a read and three timers;
under load that is half of what a request of ours costs. No command waits for others: what is there when a lane is free
goes at once, and the rest goes together as soon as one is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

import redis.exceptions as faults
from redis.asyncio import Redis

from ledger.redis.scripts import Commands

LANES = 4
"""Batches in flight, and so connections. Redis answers them one after another; more than one, so that a slow script
does not hold up all others."""

BATCH = 64
"""Commands that go together at most: their answers are waited for together, too."""

CLOSED = "the connections to Redis were closed"


class Batching:
    """Sends the commands of one server in batches. A Cluster's nodes have connections of their own."""

    def __init__(self, client: Redis, *, lanes: int = LANES, batch: int = BATCH) -> None:
        self._client = client
        self._batch = batch
        self._free = lanes
        self._waiting: deque[tuple[tuple[Any, ...], asyncio.Future[Any]]] = deque()
        self._due = False
        self._closed = False
        self._running: set[asyncio.Task[None]] = set()

    async def execute_command(self, *words: Any) -> Any:
        """Send a command, return the answer. A caller that is cancelled meanwhile takes nothing from the others."""
        if self._closed:
            raise faults.ConnectionError(CLOSED)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((words, answer))
        if not self._due and self._free:
            self._due = True
            loop.call_soon(self._start)
        return await answer

    async def aclose(self) -> None:
        """Give up the batches that are under way; each command still waiting for an answer gets an error."""
        self._closed = True
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        _fail([answer for _, answer in self._waiting], faults.ConnectionError(CLOSED))
        self._waiting.clear()

    def _start(self) -> None:
        self._due = False
        while self._free and self._waiting:
            self._free -= 1
            # Ends with the answers, which have a deadline; `aclose` cancels it.
            task = asyncio.get_running_loop().create_task(self._lane())
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._free += 1
        if self._waiting and not self._closed:
            self._start()

    async def _lane(self) -> None:
        """Send what waits until nothing does."""
        while self._waiting and not self._closed:
            batch: list[tuple[tuple[Any, ...], asyncio.Future[Any]]] = []
            while self._waiting and len(batch) < self._batch:
                words, answer = self._waiting.popleft()
                if not answer.done():
                    batch.append((words, answer))
            try:
                answers = await self._sent([words for words, _ in batch])
            except asyncio.CancelledError:
                _fail([answer for _, answer in batch], faults.ConnectionError(CLOSED))
                raise
            except Exception as error:  # noqa: BLE001 - each waiting command gets it
                _fail([answer for _, answer in batch], error)
                continue
            for (_, future), answer_or_error in zip(batch, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer_or_error, Exception):
                    future.set_exception(answer_or_error)
                else:
                    future.set_result(answer_or_error)

    async def _sent(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        if len(commands) == 1:
            client: Commands = self._client
            return [await client.execute_command(*commands[0])]
        if not commands:
            return []
        pipeline: Any = self._client.pipeline(transaction=False)
        for words in commands:
            pipeline.execute_command(*words)
        answers: list[Any] = await pipeline.execute(raise_on_error=False)
        return answers


def _fail(answers: Iterable[asyncio.Future[Any]], error: Exception) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)
