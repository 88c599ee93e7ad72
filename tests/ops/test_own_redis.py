from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis

import ops.own_redis
from ledger.embedded import EmbeddedRedis, NoServer
from ops.own_redis import keep_running, own_redis, private, url_in
from ops.settings import SettingError
from tests.within import within

WITHIN_S = 60.0


@asynccontextmanager
async def looked_after(server: EmbeddedRedis, *, kept: bool) -> AsyncIterator[asyncio.Task[None]]:
    """`keep_running` beside the test."""
    stop = asyncio.Event()
    task = asyncio.create_task(keep_running(server, kept=kept, rng=random.Random(1), stop=stop))
    try:
        yield task
    finally:
        stop.set()
        if not task.done():
            await within(task, WITHIN_S)


async def runs_again(server: EmbeddedRedis, *, since: int) -> None:
    """Wait until the server answers as another process."""
    async with asyncio.timeout(WITHIN_S):
        while not await asyncio.to_thread(server.answers) or server.pid == since:
            pass


def pid_of(server: EmbeddedRedis) -> int:
    assert server.pid is not None
    return server.pid


async def test_a_killed_server_is_started_again_with_its_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="ops.own_redis"):
        async with own_redis(tmp_path / "data") as server, looked_after(server, kept=True):
            with redis.Redis.from_url(server.url) as client:
                client.config_set("appendfsync", "always")
                client.set("here", "1")
            before, url = pid_of(server), server.url
            os.kill(before, signal.SIGKILL)
            await runs_again(server, since=before)
            assert server.url == url
            with redis.Redis.from_url(url) as client:
                assert client.get("here") == b"1"
    told = {getattr(record, "action", None): record.getMessage() for record in caplog.records}
    assert list(told) == ["redis_started", "redis_ended", "redis_restarted"]
    assert "its data is kept" in told["redis_ended"]


async def test_a_server_that_hangs_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ops.own_redis, "HUNG_S", 0.0)
    monkeypatch.setattr(ops.own_redis, "ASK_EVERY_S", 0.0)
    async with own_redis(None) as server, looked_after(server, kept=False):
        before = pid_of(server)
        server.pause()
        await runs_again(server, since=before)
    assert "does not answer" in caplog.text
    assert "its data is lost" in caplog.text


async def test_a_server_that_cannot_be_started_again_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops.own_redis, "GIVEN_UP_AFTER", 2)
    async with own_redis(None) as server:
        stop = asyncio.Event()

        async def fail(*, empty: bool) -> None:
            raise NoServer("redis-server: it ended at once.")

        monkeypatch.setattr(server, "restart_async", fail)
        os.kill(pid_of(server), signal.SIGKILL)
        with pytest.raises(NoServer):
            await within(keep_running(server, kept=False, rng=random.Random(1), stop=stop), WITHIN_S)


async def test_nothing_is_started_again_while_the_process_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    async with own_redis(None) as server:
        stop = asyncio.Event()

        async def fail(*, empty: bool) -> None:
            stop.set()
            raise NoServer("redis-server: it ended at once.")

        monkeypatch.setattr(server, "restart_async", fail)
        os.kill(pid_of(server), signal.SIGKILL)
        await within(keep_running(server, kept=False, rng=random.Random(1), stop=stop), WITHIN_S)


class TestDirectory:
    """The data of all callers lies in it."""

    @pytest.mark.parametrize("made", [False, True])
    def test_it_is_closed_also_where_it_was_there_before(self, tmp_path: Path, made: bool) -> None:
        directory = tmp_path / "data"
        if made:
            directory.mkdir(mode=0o755)
            (directory / "server.conf").touch()
        assert stat.S_IMODE(private(directory).stat().st_mode) == 0o700

    def test_one_with_other_files_is_not_touched(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        (tmp_path / "thesis.tex").touch()
        with pytest.raises(SettingError, match="holds other files"):
            private(tmp_path)
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755

    def test_one_of_another_user_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(SettingError, match="belongs to another user"):
            private(tmp_path)

    def test_a_file_in_its_place_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "data").touch()
        with pytest.raises(SettingError, match="cannot be used"):
            private(tmp_path / "data")

    async def test_two_servers_do_not_share_it(self, tmp_path: Path) -> None:
        async with own_redis(tmp_path / "data"):
            with pytest.raises(SettingError, match="in use by another one"):
                async with own_redis(tmp_path / "data"):
                    pass

    async def test_it_says_where_its_server_is(self, tmp_path: Path) -> None:
        async with own_redis(tmp_path / "data") as server:
            assert url_in(tmp_path / "data") == server.url

    @pytest.mark.parametrize(("text", "told"), [(None, "cannot be read"), ("port x\n", "was not written by")])
    def test_another_directory_has_no_server(self, tmp_path: Path, text: str | None, told: str) -> None:
        if text is not None:
            (tmp_path / "server.conf").write_text(text)
        with pytest.raises(SettingError, match=told):
            url_in(tmp_path)
