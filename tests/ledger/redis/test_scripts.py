from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import pytest
import redis.exceptions as faults

from ledger.port import LedgerUnavailable
from ledger.redis.scripts import DamagedKey, HashKey, Key, Scripts, script
from tests.fake_redis import FakeTopology


@script("return { one, two, number + 1, #words, words[2] }", idempotent=True)
def describe(*, one: Key, two: Key, number: int, words: Sequence[bytes]) -> list[Any] | None:
    """Echo everything."""


@script("redis.call('INCR', counter) return 1", idempotent=False)
def count(*, counter: Key) -> int:
    """Not to be repeated."""
    raise NotImplementedError


class Client:
    """Answers with what is next in its list; an exception is raised."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[Any, ...]] = []

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        self.sent.append(args)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def scripts(client: Client, **settings: Any) -> Scripts:
    return Scripts(client, rng=random.Random(1), **settings)


ONE, TWO = Key("{x}:one"), Key("{x}:two")


async def test_keys_and_arguments_have_their_names_in_lua() -> None:
    topology = FakeTopology()
    sender = Scripts(topology.commands)
    got = await describe(sender, one=ONE, two=TWO, number=4, words=[b"a", b"\xff"])
    assert got == [b"{x}:one", b"{x}:two", 5, 2, b"\xff"]
    assert await describe(sender, one=ONE, two=TWO, number=4, words=[]) == [b"{x}:one", b"{x}:two", 5, 0]
    await topology.aclose()


class Pair(msgspec.Struct, frozen=True):
    """Keys and an argument that go together."""

    kept: HashKey
    listed: Annotated[Key, "list"]
    times: int


@script("return { lone, kept, listed, times * 2, words[1] }", idempotent=True)
def grouped(*, pair: Pair, lone: Key, words: Sequence[str]) -> list[Any] | None:
    """Echo everything."""


async def test_a_struct_stands_for_its_fields() -> None:
    topology = FakeTopology()
    pair = Pair(kept=ONE, listed=TWO, times=4)
    got = await grouped(Scripts(topology.commands), pair=pair, lone=Key("{x}:lone"), words=["w"])
    assert got == [b"{x}:lone", b"{x}:one", b"{x}:two", 8, b"w"]
    assert grouped.holds == ["hash", "list", ""]
    await topology.aclose()


WRONG = faults.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")


async def test_a_key_of_a_wrong_type_is_dropped_and_the_script_runs_again() -> None:
    client = Client(WRONG, 1, [b"done"])
    pair = Pair(kept=ONE, listed=TWO, times=4)
    assert await grouped(scripts(client), pair=pair, lone=Key("{x}:lone"), words=[]) == [b"done"]
    assert client.sent[1][3:] == (ONE, TWO, Key("{x}:lone"), ONE, "hash", TWO, "list"), "what is not declared stays"


async def test_where_no_key_was_of_a_wrong_type_it_is_the_callers_to_mend() -> None:
    failures: list[str] = []
    sender = scripts(Client(WRONG, 0))
    sender.on_unavailable = lambda: failures.append("away")
    with pytest.raises(DamagedKey):
        await grouped(sender, pair=Pair(kept=ONE, listed=TWO, times=4), lone=Key("{x}:lone"), words=[])
    assert failures == [], "the store is there"


async def test_a_command_says_what_its_key_holds() -> None:
    client = Client(WRONG, 1, None)
    assert await scripts(client).command("HGET", ONE, "field", idempotent=True, holds="hash") is None
    with pytest.raises(DamagedKey):
        await scripts(Client(WRONG)).command("HGET", ONE, "field", idempotent=True)


async def test_each_failure_is_told_but_not_that_of_one_who_did_not_wait() -> None:
    told: list[str] = []
    sender = scripts(Client(faults.ReadOnlyError("You can't write against a read only replica.")))
    sender.on_unavailable = lambda: told.append("away")
    with pytest.raises(LedgerUnavailable):
        await sender.command("SET", "key", 1, idempotent=True)
    assert told == ["away"]


def test_a_script_is_documented_and_named_like_its_stub() -> None:
    assert describe.name == "describe"
    assert describe.__doc__ == "Echo everything."


async def test_a_script_the_server_does_not_know_is_sent_whole() -> None:
    client = Client(faults.NoScriptError(), 1, 1)
    sender = scripts(client)
    assert await count(sender, counter=ONE) == 1
    assert await count(sender, counter=ONE) == 1
    assert [words[0] for words in client.sent] == ["EVALSHA", "EVAL", "EVALSHA"]
    assert client.sent[0][1:] == (count.sha, 1, ONE)
    assert client.sent[1][1:] == (count.lua, 1, ONE)


@pytest.mark.parametrize(
    "error",
    [
        faults.ConnectionError("gone"),
        faults.BusyLoadingError(),
        faults.ClusterError("down"),
        faults.RedisClusterException("no slot"),
    ],
)
async def test_what_may_be_repeated_is_repeated_once(error: Exception) -> None:
    client = Client(error, [b"fine"])
    assert await describe(scripts(client), one=ONE, two=TWO, number=1, words=[]) == [b"fine"]
    assert len(client.sent) == 2


async def test_once_only() -> None:
    client = Client(faults.ConnectionError("gone"), faults.ConnectionError("still gone"), [b"too late"])
    with pytest.raises(LedgerUnavailable, match="still gone"):
        await describe(scripts(client), one=ONE, two=TWO, number=1, words=[])


async def test_what_must_not_be_repeated_is_not() -> None:
    client = Client(faults.ConnectionError("gone"), 1)
    with pytest.raises(LedgerUnavailable):
        await count(scripts(client), counter=ONE)
    with pytest.raises(LedgerUnavailable):
        await scripts(Client(faults.ConnectionError("gone"), 1)).command("INCR", ONE, idempotent=False)
    assert len(client.sent) == 1


@pytest.mark.parametrize(
    ("error", "next_step"),
    [
        (faults.TimeoutError("slow"), "FMSG_REDIS_URL"),
        (faults.AuthenticationError("wrong password"), "FMSG_REDIS_URL"),
        (faults.OutOfMemoryError("full"), "fmsg-mcpd doctor"),
        (faults.ReadOnlyError("replica"), "fmsg-mcpd doctor"),
        (faults.NoPermissionError("no"), "fmsg-mcpd doctor"),
        (faults.ResponseError("odd"), "fmsg-mcpd doctor"),
        (OSError("broken"), "FMSG_REDIS_URL"),
    ],
)
async def test_every_failure_says_what_failed_why_and_what_next(error: Exception, next_step: str) -> None:
    client = Client(error)
    with pytest.raises(LedgerUnavailable) as caught:
        await scripts(client).command("GET", ONE, idempotent=True)
    assert str(caught.value).startswith(f"Redis: get failed ({type(error).__name__}: {error}).")
    assert next_step in str(caught.value)
    assert caught.value.__cause__ is error


async def test_commands_take_turns_and_nobody_waits_for_ever() -> None:
    held = asyncio.Event()
    let_go = asyncio.Event()

    class Slow:
        async def execute_command(self, *args: Any, **options: Any) -> Any:
            held.set()
            await let_go.wait()
            return args[0]

    sender = Scripts(Slow(), max_concurrent=1, queue_timeout_s=0.05)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(sender.command("FIRST", idempotent=True))
        await held.wait()
        with pytest.raises(LedgerUnavailable, match="no turn"):
            await sender.command("SECOND", idempotent=True)
        let_go.set()
    assert first.result() == "FIRST"
    assert await sender.command("THIRD", idempotent=True) == "THIRD"


async def test_a_cancelled_command_gives_its_turn_back() -> None:
    held = asyncio.Event()

    class Hanging:
        async def execute_command(self, *args: Any, **options: Any) -> Any:
            if args[0] == "HANG":
                held.set()
                await asyncio.get_running_loop().create_future()
            return args[0]

    sender = Scripts(Hanging(), max_concurrent=1)
    hanging = asyncio.create_task(sender.command("HANG", idempotent=True))
    await held.wait()
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    assert await sender.command("NEXT", idempotent=True) == "NEXT"


class Losing:
    """Loses the cancellation of a command, as `asyncio.wait_for` may."""

    def __init__(self, *, fail: bool) -> None:
        self.entered = asyncio.Event()
        self.fail = fail

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        self.entered.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        if self.fail:
            raise faults.ResponseError("no")
        return b"done"


@pytest.mark.parametrize("fail", [False, True])
async def test_a_cancellation_that_gets_lost_is_heeded_all_the_same(fail: bool) -> None:
    client = Losing(fail=fail)
    sender = Scripts(client)
    task = asyncio.create_task(sender.command("GET", "x", idempotent=True))
    await client.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_deadline_that_gets_lost_is_one_all_the_same() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await Scripts(Losing(fail=False)).command("GET", "x", idempotent=True)


async def test_what_is_sent_after_a_cancellation_is_sent() -> None:
    answers: list[object] = []

    async def clean_up_behind() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            answers.append(await scripts(Client(b"left")).command("DEL", "x", idempotent=True))

    task = asyncio.create_task(clean_up_behind())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert answers == [b"left"]


def test_stubs_that_cannot_be_scripts_are_refused() -> None:
    with pytest.raises(TypeError, match="keyword-only"):

        @script("", idempotent=True)
        def positional(key: Key) -> None:
            """Wrong."""

    with pytest.raises(TypeError, match="last argument"):

        @script("", idempotent=True)
        def two_lists(*, some: Sequence[str], more: Sequence[str]) -> None:
            """Wrong."""

    with pytest.raises(TypeError, match=r"\['end'\] cannot be names in Lua"):

        @script("", idempotent=True)
        def keyword(*, end: int) -> None:
            """Wrong."""
