from __future__ import annotations

import asyncio
import io
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fmsg.errors import BadInput
from ledger.embedded import EmbeddedRedis, free_port
from ledger.seal import SealKeys
from ops.cli import main
from ops.doctor.run import DoctorOptions, Group, examine, likely_role, read_key, secrets_of
from ops.own_redis import own_redis
from sandbox.host import SandboxHost, serve

ALICE = "@alice@here.test"
SEAL_KEY = SealKeys.generate()


class HostWithKey:
    """A host with somebody on it."""

    def __init__(self, host: SandboxHost, url: str) -> None:
        self.url = url
        self.key = host.control.create_key(ALICE)


@pytest.fixture
async def place() -> AsyncIterator[HostWithKey]:
    host = SandboxHost("here.test")
    async with serve(host) as url:
        yield HostWithKey(host, url)


async def run(*arguments: str, **environ: str) -> tuple[int, str, str]:
    """The command as an operator runs it: exit status, standard output, standard error."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("FMSG_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fmsg_mcpd",
        "doctor",
        *arguments,
        env={**ours, **environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


@pytest.mark.processes
async def test_stdio_that_is_well(place: HostWithKey) -> None:
    status, out, err = await run(FMSG_API_URL=place.url, FMSG_API_KEY=place.key)
    assert (status, err) == (0, "")
    assert f"it acts as {ALICE}" in out
    assert "0 failed, 0 warnings" in out
    assert place.key not in out


@pytest.mark.processes
async def test_stdio_with_a_key_that_is_not_accepted(place: HostWithKey) -> None:
    status, out, _ = await run(FMSG_API_URL=place.url, FMSG_API_KEY="fmsgk_bm9ib2R5bm9ib2R5")
    assert status == 1
    assert "FAILED   token" in out
    assert "Make a new one at the host." in out
    assert "bm9ib2R5" not in out


@pytest.mark.processes
async def test_a_fleet_that_is_well(place: HostWithKey, redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{place.key}\n")
    environ = {"FMSG_API_URL": place.url, "FMSG_REDIS_URL": redis_url, "FMSG_SEAL_KEY": SEAL_KEY}
    status, out, err = await run("--json", "--key-file", str(tmp_path / "key"), **environ)
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert (report["role"], report["ok"]) == ("fleet", True)
    levels = {found["check"]: found["level"] for found in report["findings"]}
    assert {check for check, level in levels.items() if level == "warning"} <= {"file limit", "redis persistence"}
    assert {"socket", "redis rights", "job queue", "allowed hosts"} <= {
        check for check, level in levels.items() if level == "ok"
    }
    for secret in (place.key, SEAL_KEY, redis_url.partition("@")[0].rpartition(":")[2]):
        assert secret not in out


@pytest.mark.processes
async def test_redis_that_is_away_is_said_without_its_password(place: HostWithKey, redis_server: EmbeddedRedis) -> None:
    url = f"redis://:hunter2hunter2@127.0.0.1:{redis_server.port}/0"
    environ = {"FMSG_API_URL": place.url, "FMSG_REDIS_URL": url, "FMSG_SEAL_KEY": SEAL_KEY}
    status, out, err = await run("--only", "redis", **environ)
    assert (status, err) == (1, ""), "a wrong password is no outage"
    assert "FAILED   redis" in out
    assert "hunter2" not in out
    environ["FMSG_REDIS_URL"] = f"redis://:hunter2hunter2@127.0.0.1:{free_port()}/0"
    status, out, _ = await run("--only", "redis", **environ)
    assert status == 75
    assert "Nothing listens there" in out


@pytest.mark.processes
async def test_a_host_that_is_away_is_an_outage_and_a_wrong_path_is_none(place: HostWithKey) -> None:
    environ = {"FMSG_API_URL": f"http://127.0.0.1:{free_port()}", "FMSG_API_KEY": place.key}
    status, out, _ = await run("--only", "host", **environ)
    assert (status, "connection refused" in out) == (75, True)
    status, out, _ = await run("--only", "host", **{**environ, "FMSG_API_URL": f"{place.url}/nowhere"})
    assert (status, "a path may be missing" in out) == (1, True)


@pytest.mark.processes
async def test_the_redis_of_an_up_is_looked_at_by_its_directory(place: HostWithKey, tmp_path: Path) -> None:
    async with own_redis(tmp_path / "data") as server:
        status, out, err = await run("--only", "redis", "--data-dir", str(tmp_path / "data"), FMSG_API_URL=place.url)
    assert (status, err) == (0, "")
    assert "all parts work" in out
    assert server.password not in out
    assert (await run("--data-dir", str(tmp_path)))[0] == 2


@pytest.mark.processes
async def test_before_a_service_starts() -> None:
    environ = {
        "FMSG_API_URL": "https://nothing.invalid",
        "FMSG_REDIS_URL": "redis://127.0.0.1:1/0",
        "FMSG_SEAL_KEY": SEAL_KEY,
    }
    status, out, _ = await run("--for", "front", "--only", "configuration", **environ)
    assert status == 0
    assert "dns" not in out
    status, out, _ = await run("--for", "front", "--only", "configuration", **environ, FMSG_MCP_HOST="0.0.0.0")
    assert status == 1
    assert "FAILED   allowed hosts" in out


async def checks(options: DoctorOptions, environ: dict[str, str], *, role: str, key: str | None = None) -> list[str]:
    return [found.check async for found in examine(options, environ, role=role, key=key)]


async def test_only_what_was_asked_for_is_checked(place: HostWithKey) -> None:
    environ = {"FMSG_API_URL": place.url, "FMSG_API_KEY": place.key}
    assert await checks(DoctorOptions(only=("host",)), environ, role="stdio") == [
        "dns",
        "connection",
        "api",
        "clock",
        "token",
        "identity",
        "socket",
    ]
    assert set(await checks(DoctorOptions(only=("configuration",)), environ, role="stdio")) == {
        "configuration",
        "file limit",
    }


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"FMSG_API_URL": "ftp://x", "FMSG_REDIS_URL": "http://x", "FMSG_SEAL_KEY": "x"},
        {"FMSG_REDIS_URL": "redis://127.0.0.1:1", "FMSG_REDIS_PREFIX": "{}"},
    ],
)
async def test_what_cannot_be_tried_is_a_matter_of_configuration(environ: dict[str, str]) -> None:
    found = [one async for one in examine(DoctorOptions(), environ, role="fleet")]
    assert {one.check for one in found if one.level != "skipped"} <= {"configuration", "file limit", "allowed hosts"}


@pytest.mark.parametrize(
    ("group", "environ", "came"),
    [
        ("host", {}, "it is not set|is not set"),
        ("host", {"FMSG_API_URL": "ftp://x"}, "http"),
        ("host", {"FMSG_API_URL": "http://host.example"}, "cleartext"),
        ("redis", {}, "is not set"),
        ("redis", {"FMSG_REDIS_URL": "http://user:hunter2@x"}, "scheme … is unknown"),
        ("redis", {"FMSG_REDIS_URL": "redis://:hun#ter2@x"}, "it has a # in it"),
        ("proxy", {}, "no URL is given"),
    ],
)
@pytest.mark.parametrize("role", ["stdio", "fleet"])
async def test_a_check_that_was_asked_for_and_cannot_be_made_is_a_failure(
    group: Group, environ: dict[str, str], came: str, role: str
) -> None:
    (found,) = [one async for one in examine(DoctorOptions(only=(group,)), environ, role=role)]
    assert (found.check, found.level, found.outage) == (group, "failure", False)
    assert re.search(came, found.came)
    assert found.do
    assert "ter2" not in f"{found.came}{found.do}"


async def test_a_proxy_takes_a_key() -> None:
    options = DoctorOptions(mcp_url="http://127.0.0.1:1/mcp", only=("proxy",))
    found = [one async for one in examine(options, {}, role="front")]
    assert [(one.check, one.level) for one in found] == [("proxy", "failure")]
    found = [one async for one in examine(DoctorOptions(mcp_url="http://127.0.0.1:1/mcp"), {}, role="front")]
    assert ("proxy", "skipped") in [(one.check, one.level) for one in found]
    found = [one async for one in examine(options, {}, role="front", key="fmsgk_a2V5")]
    assert [(one.check, one.level) for one in found] == [("proxy", "failure")]


async def test_up_is_checked_with_a_redis_of_its_own_choice(place: HostWithKey, redis_url: str) -> None:
    environ = {"FMSG_API_URL": place.url, "FMSG_REDIS_URL": redis_url}
    found = await checks(DoctorOptions(only=("redis",)), environ, role="up")
    assert "redis rights" in found
    assert not {"seal key", "job queue"} & set(found), "it seals with a key of its own and does its jobs itself"
    found = await checks(DoctorOptions(only=("redis",)), {"FMSG_API_URL": place.url}, role="up")
    assert list(found) == ["redis"]


@pytest.mark.parametrize(
    ("environ", "role"),
    [
        ({}, "stdio"),
        ({"FMSG_API_KEY": "k"}, "stdio"),
        ({"FMSG_REDIS_URL": "redis://x"}, "fleet"),
        ({"FMSG_REDIS_URL": "redis://x", "FMSG_API_KEY": "k"}, "stdio"),
    ],
)
def test_what_an_environment_is_meant_for(environ: dict[str, str], role: str) -> None:
    assert likely_role(environ) == role


class TestKeyFile:
    def test_a_key_is_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "key").write_text("\n fmsgk_a2V5 \n")
        assert read_key(str(tmp_path / "key")) == "fmsgk_a2V5"
        monkeypatch.setattr("sys.stdin", io.StringIO("fmsgk_a2V5\n"))
        assert read_key("-") == "fmsgk_a2V5"

    @pytest.mark.parametrize("content", [b"", b"one two", b"x" * 5000, b"\xff\xfe"])
    def test_what_is_no_key_is_refused(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "key").write_bytes(content)
        with pytest.raises(BadInput, match="--key-file"):
            read_key(str(tmp_path / "key"))

    def test_a_file_that_there_is_not(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["doctor", "--key-file", "/nonexistent"]) == 2
        assert "--key-file: /nonexistent cannot be read" in capsys.readouterr().err


def test_every_secret_is_known() -> None:
    environ = {
        "FMSG_API_KEY": "fmsgk_a2V5",
        "FMSG_SEAL_KEY": "new, old",
        "FMSG_REDIS_URL": "redis+sentinel://user:p%40ss@host/service?sentinel_password=other",
        "FMSG_QUEUE_REDIS_URL": "nonsense://a:b@c",
    }
    found = set(secrets_of(environ, "fmsgk_b3RoZXI="))
    assert {"fmsgk_a2V5", "fmsgk_b3RoZXI=", "new", "old", "p@ss", "p%40ss", "other", "b"} <= found
