from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fmsg.http import HostHttp
from ledger.embedded import free_port
from ledger.seal import SealKeys
from ledger.store import RedisStore
from ledger.values import caller_key
from ops.cli import main
from ops.processes import Child
from tests.key_tokens import KeyTokens
from tests.sandbox_control import SandboxControl

ANN = "@ann@here.test"
SEAL_KEY = SealKeys.generate()


def environ(**changes: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("FMSG_")}
    return {**ours, "FMSG_SEAL_KEY": SEAL_KEY, **changes}


async def run(*arguments: str, **changes: str) -> tuple[int | None, str, str]:
    """The command as an operator runs it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fmsg_mcpd",
        "caller",
        *arguments,
        env=environ(**changes),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


class CallerFleet:
    """A sandbox host and a daemon as processes, with somebody whose feed is live."""

    def __init__(self, control: SandboxControl, env: dict[str, str], api_key: str) -> None:
        self.control = control
        self.env = env
        self.api_key = api_key

    async def caller(self, *arguments: str) -> tuple[int | None, Any]:
        """The command, its JSON."""
        code, out, err = await run(ANN, "--json", *arguments, **self.env)
        assert err == ""
        assert self.api_key not in out
        return code, json.loads(out)


@pytest.fixture
async def fleet(redis_url: str, tmp_path: Path) -> AsyncIterator[CallerFleet]:
    async with AsyncExitStack() as stack:
        sandbox = await Child.start("sandbox", "sandbox", "--json", "--domain", "here.test", env={}, log_dir=tmp_path)
        stack.push_async_callback(sandbox.stop)
        host = (await sandbox.announcement("url"))[0]
        control = SandboxControl(host["control"])
        api_key = await control.make_person(ANN)
        env = {"FMSG_API_URL": host["url"], "FMSG_REDIS_URL": redis_url, "FMSG_SEAL_KEY": SEAL_KEY}
        daemon = await Child.start("daemon", "daemon", env=env, log_dir=tmp_path)
        stack.push_async_callback(daemon.stop)
        await daemon.announcement("daemon")
        store = await stack.enter_async_context(RedisStore(redis_url, seal=SealKeys.parse(SEAL_KEY)))
        http = await stack.enter_async_context(HostHttp(host["url"]))
        token = await KeyTokens(http, api_key).token()
        key = caller_key(host["url"], ANN)
        await store.activations.activate(
            key, address=ANN, api_url=host["url"], token=token.value, token_expires_at_s=token.expires_at_s
        )
        async with asyncio.timeout(30):
            while (report := await store.activations.feed(key)) is None or not report.live:
                pass
        yield CallerFleet(control, env, api_key)


@pytest.mark.processes
async def test_a_caller_is_shown_and_helped(fleet: CallerFleet) -> None:
    await fleet.control.call("deafen")
    await fleet.control.call("deliver", **{"from": "@bob@far.test", "to": [ANN]})
    code, told = await fleet.caller()
    assert code == 0
    assert told["remarks"][0]["what"] == "its feed is live"
    assert (told["feed"]["live"] if "live" in told["feed"] else told["feed"]["state"]) in (True, "live")
    assert told["ledger"]["held"] == 0

    code, told = await fleet.caller("--reconcile")
    assert code == 0
    assert "1 message was missing and is there now" in told["outcome"]["came"]
    assert told["ledger"]["tail"] == []
    assert [entry["source"] for entry in told["ledger"]["head"]] == ["reconcile"]
    assert "@bob" not in json.dumps(told)

    connects = (await fleet.control.call("stats"))["connects"]
    code, told = await fleet.caller("--reconnect")
    assert code == 0
    assert told["outcome"]["came"].startswith("its feed began anew and is live")
    assert (await fleet.control.call("stats"))["connects"] == connects + 1

    code, told = await fleet.caller("--forget")
    assert code == 0
    assert told["ledger"] is None
    assert told["remarks"][0]["what"] == "it is not known here"
    assert (await fleet.control.call("stats"))["open_sockets"] == 0

    code, told = await fleet.caller("--reconnect")
    assert code == 1
    assert "nothing to reconnect" in told["outcome"]["came"]


@pytest.mark.processes
async def test_who_is_not_known_is_said_for_people(redis_url: str) -> None:
    code, out, err = await run(
        "ann", FMSG_REDIS_URL=redis_url, FMSG_API_URL="https://api.example.com", FMSG_DEFAULT_DOMAIN="here.test"
    )
    assert (code, err) == (0, "")
    assert out.startswith(f"{ANN}  (caller {caller_key('https://api.example.com', ANN)})\n  it is not known here")
    code, out, _ = await run("--forget", ANN, FMSG_REDIS_URL=redis_url, FMSG_API_URL="https://api.example.com")
    assert code == 0
    assert out.startswith("its ledger and its activation are forgotten\n-> Its next request")


@pytest.mark.processes
async def test_redis_that_is_away_is_said() -> None:
    code, out, err = await run(
        ANN, FMSG_REDIS_URL=f"redis://:hunter2@127.0.0.1:{free_port()}", FMSG_API_URL="https://api.example.com"
    )
    assert (code, out) == (1, "")
    assert "doctor --only redis" in err
    assert "Traceback" not in err
    assert "hunter2" not in err


@pytest.mark.parametrize(
    ("arguments", "changes", "told"),
    [
        ([ANN], {"FMSG_API_URL": ""}, "FMSG_API_URL is not set"),
        ([ANN], {"FMSG_API_URL": "ftp://x"}, "FMSG_API_URL"),
        ([ANN], {"FMSG_REDIS_URL": ""}, "FMSG_REDIS_URL is not set"),
        ([ANN], {"FMSG_SEAL_KEY": ""}, "FMSG_SEAL_KEY is not set"),
        (["ann"], {}, "short name"),
        (["@@"], {}, "not an fmsg address"),
        ([ANN, "--forget-everything"], {}, "Add --yes"),
    ],
)
def test_what_cannot_be_asked_for(
    arguments: list[str],
    changes: dict[str, str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    good = {"FMSG_REDIS_URL": "redis://127.0.0.1:1", "FMSG_API_URL": "https://api.example.com"}
    for name, value in environ(**{**good, **changes}).items():
        monkeypatch.setenv(name, value)
    assert main(["caller", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_one_order_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["caller", ANN, "--reconnect", "--forget"])
    assert "not allowed with" in capsys.readouterr().err
