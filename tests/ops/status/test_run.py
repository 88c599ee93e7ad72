from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ledger.embedded import EmbeddedRedis, free_port
from ledger.operators import Process
from ledger.seal import SealKeys
from ledger.store import RedisStore
from ops.cli import main
from ops.own_redis import url_in
from ops.presence import presence
from ops.processes import Child
from ops.status.picture import Picture
from ops.status.run import NoPicture, pictures
from tests.ops.pictures import picture

SEAL_KEY = SealKeys.generate()


def environ(**changes: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("FMSG_")}
    return {**ours, "FMSG_SEAL_KEY": SEAL_KEY, **changes}


@asynccontextmanager
async def status(*arguments: str, **changes: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command as an operator runs it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fmsg_mcpd",
        "status",
        *arguments,
        env=environ(**changes),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def run(*arguments: str, **changes: str) -> tuple[int | None, str, str]:
    async with status(*arguments, **changes) as process:
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.processes
async def test_a_fleet_is_shown(redis_server: EmbeddedRedis, redis_url: str, tmp_path: Path) -> None:
    env = {"FMSG_REDIS_URL": redis_url, "FMSG_SEAL_KEY": SEAL_KEY, "FMSG_API_URL": f"http://127.0.0.1:{free_port()}"}
    daemon = await Child.start("daemon", "daemon", env=env, log_dir=tmp_path)
    try:
        await daemon.announcement("daemon")
        async with RedisStore(redis_url, seal=SealKeys.parse(SEAL_KEY)) as store:
            while not await store.fleet.members():
                pass
            async with presence(store, role="front", facts=lambda: {"waits_held": 41.0}):
                while not await store.processes.present():
                    pass
                code, out, err = await run("--json", FMSG_REDIS_URL=redis_url)
    finally:
        await daemon.stop()
    assert (code, err) == (1, "")
    told = json.loads(out)
    assert [one["name"].endswith(f"-{daemon.pid}") for one in told["daemons"]] == [True]
    assert {"waits_held": 41.0} in [one["facts"] for one in told["processes"]]
    assert any("no worker" in problem["what"] for problem in told["problems"])
    assert redis_server.password not in out


@pytest.mark.processes
async def test_a_watch_goes_on_until_interrupted(redis_url: str) -> None:
    async with status("--watch", "--json", "--every", "0.01", FMSG_REDIS_URL=redis_url) as process:
        assert process.stdout is not None
        for _ in range(3):
            assert json.loads(await process.stdout.readline())["callers"]["active"] == 0
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")


@pytest.mark.processes
async def test_redis_that_is_away_is_said() -> None:
    code, out, err = await run(FMSG_REDIS_URL=f"redis://:hunter2@127.0.0.1:{free_port()}")
    assert (code, out) == (2, "")
    assert "doctor" in err
    assert "Traceback" not in err
    assert "hunter2" not in err


@pytest.mark.processes
async def test_an_up_is_known_by_its_data_directory(tmp_path: Path) -> None:
    """No seal key and no Redis URL. The exit status says whether all is well."""
    data = tmp_path / "data"
    env = {"FMSG_API_URL": f"http://127.0.0.1:{free_port()}", "FMSG_MCP_PORT": "0"}
    up = await Child.start("up", "up", "--data-dir", str(data), env=env, log_dir=tmp_path)

    async def problems(*more: str) -> str:
        code, out, err = await run("--json", "--data-dir", str(data), *more, FMSG_SEAL_KEY="")
        told = json.loads(out)
        assert (code, err) == (0 if told["well"] else 1, "")
        return ", ".join(problem["what"] for problem in told["problems"])

    try:
        await up.announcement("mcp_url")
        while "runs" in (found := await problems()):
            assert "only one" not in found
        async with RedisStore(url_in(data), seal=SealKeys.parse(SEAL_KEY)) as store:
            gone = Process(id="gone", role="front", name="elsewhere-1", version="1", since_s=1.0, facts={"ended": 1.0})
            await store.processes.announce(gone)
            async with asyncio.timeout(60):  # a Redis that has just started has not heard everybody yet
                while "front elsewhere-1 ended without saying so" not in await problems():
                    pass
            assert "elsewhere-1" not in await problems("--forget-silent")
            assert "gone" not in [process.id for process in await store.processes.present()]
    finally:
        await up.stop()
    code, _, err = await run("--data-dir", str(data), FMSG_SEAL_KEY="")
    assert (code, err.startswith(f"fmsg-mcpd status: Does `fmsg-mcpd up --data-dir {data}` run? ")) == (2, True)


@pytest.mark.parametrize(("shown", "code"), [(picture(), 0), (picture(daemons=()), 1)])
def test_the_exit_status_is_for_monitoring(
    shown: Picture, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def look(*_: object, **__: object) -> Picture:
        return shown

    monkeypatch.setattr("ops.status.run.take_picture", look)
    for name, value in environ(FMSG_REDIS_URL="redis://127.0.0.1:1").items():
        monkeypatch.setenv(name, value)
    assert main(["status"]) == code
    assert "DAEMONS" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"FMSG_REDIS_URL": ""}, "FMSG_REDIS_URL is not set"),
        ({"FMSG_REDIS_URL": "http://x"}, "scheme"),
        ({"FMSG_SEAL_KEY": "c2hvcnQ="}, "FMSG_SEAL_KEY"),
        ({"FMSG_LOG_LEVEL": "loud"}, "FMSG_LOG_LEVEL"),
    ],
)
def test_settings_that_cannot_be(
    changes: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environ(**{"FMSG_REDIS_URL": "redis://127.0.0.1:1", **changes}).items():
        monkeypatch.setenv(name, value)
    assert main(["status"]) == 2
    assert told in capsys.readouterr().err


async def test_pictures_come_again_and_trouble_ends_nothing() -> None:
    looks: Iterator[Picture | NoPicture] = iter([picture(), NoPicture(TimeoutError()), picture()])

    async def look() -> Picture:
        found = next(looks)
        if isinstance(found, NoPicture):
            raise found
        return found

    seen: list[str] = []
    async for one in pictures(look, every_s=0.001):
        seen.append("picture" if isinstance(one, Picture) else str(one))
        if len(seen) == 3:
            break
    assert seen[0] == seen[2] == "picture"
    assert seen[1] == "Redis: no answer within 30 s. `fmsg-mcpd doctor --only redis` says more."
