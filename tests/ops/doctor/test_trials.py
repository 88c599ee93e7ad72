from __future__ import annotations

import pytest
from redis.exceptions import OutOfMemoryError

from ledger.embedded import free_port
from ledger.port import LedgerUnavailable
from ledger.seal import SealKeys
from ops.doctor.findings import Trouble
from ops.doctor.trials import PARTS, Trials, brief, remedy, said, try_queue

SEAL = SealKeys.parse(SealKeys.generate())


async def test_all_parts_work(redis_url: str) -> None:
    for _ in range(2):
        assert await Trials(redis_url, prefix="fmsg:doctor", seal=SEAL).run() == {}


async def test_every_part_says_why_it_does_not() -> None:
    refused = await Trials(f"redis://127.0.0.1:{free_port()}", prefix="fmsg:doctor", seal=SEAL).run()
    assert tuple(refused) == PARTS
    assert all("refused" in why or "Connect" in why for why in refused.values())


async def test_a_job_runs(redis_url: str) -> None:
    assert await try_queue(redis_url, prefix="fmsg:doctor-1") == "it ran"


async def test_a_queue_that_is_away() -> None:
    with pytest.raises(Trouble, match=r"no job can be put in: .*Error"):
        await try_queue(f"redis://127.0.0.1:{free_port()}", prefix="fmsg:doctor-1")


def test_what_redis_said_is_taken_out_of_what_we_make_of_it() -> None:
    text = "Redis: ping failed (ConnectionError: Error 111 (no)). Check that the server runs …"
    assert brief(LedgerUnavailable(text)) == "ConnectionError: Error 111 (no)"
    refused = "Redis: append failed (OutOfMemoryError: OOM denied). The server refuses this: …"
    assert brief(LedgerUnavailable(refused)) == "OutOfMemoryError: OOM denied"
    assert brief(LedgerUnavailable("another")) == "another"
    assert brief(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    "text",
    [
        "OOM denied. script: on @user_script:129.",
        "Error running script (call to f_14288fd442533b96): @user_script:129: @user_script: 129: -OOM denied.",
        "OOM denied. script: 14288fd442533b96, on @user_script:129.",
    ],
)
def test_where_in_our_scripts_it_was_refused_is_left_out(text: str) -> None:
    assert brief(LedgerUnavailable(text)) == "OOM denied"


def test_a_refused_pipeline_is_told_without_its_command() -> None:
    text = "Command # 1 (PSETEX job 1 \ufffdt\ufffd) of pipeline caused error: (\"not allowed > 'maxmemory'.\",)"
    assert said(OutOfMemoryError(text)) == "OutOfMemoryError: not allowed > 'maxmemory'"
    assert said(ConnectionError("Error 111 connecting.")) == "ConnectionError: Error 111 connecting"


@pytest.mark.parametrize(
    ("why", "do"),
    [
        ("OutOfMemoryError: OOM command not allowed when used memory > 'maxmemory'", "The server is full"),
        ("ResponseError: OOM command not allowed when used memory > 'maxmemory'", "The server is full"),
        ("NoPermissionError: this user has no permissions to run 'eval'", "rights"),
        ("AuthenticationError: invalid username-password pair", "Correct user and password"),
        ("ConnectionError: certificate verify failed", "rediss://"),
        ("ConnectionError: Error 111 connecting. Connection refused.", "start Redis"),
        ("ReadOnlyError: You can't write against a read only replica.", "primary"),
        ("TimeoutError", "server's log"),
    ],
)
def test_each_answer_has_its_next_step(why: str, do: str) -> None:
    assert do in remedy(why)
