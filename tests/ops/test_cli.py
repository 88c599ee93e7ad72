"""`ops.cli`: every command explains itself, and a mistake in the environment is a sentence, not a traceback."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import pytest

from ledger.seal import SealKeys
from ops.cli import main, parser


def commands() -> list[str]:
    """The names of all commands."""
    (action,) = (item for item in parser()._actions if isinstance(item, argparse._SubParsersAction))
    return list(action.choices)


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a process, with none of our own settings."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("FMSG_")}
    return subprocess.run(
        [sys.executable, "-m", "ops.cli", *arguments],
        env={**inherited, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_the_commands_of_the_product_are_there() -> None:
    """What the README and the operator's pages speak of."""
    assert {"stdio", "front", "daemon", "worker", "up", "sandbox", "demo", "keygen"} <= set(commands())


@pytest.mark.parametrize("command", commands())
def test_help_says_what_a_command_is_for(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each --help begins with usage and holds a sentence of its own."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: fmsg-mcpd {command}")
    assert len(text) > 150


def test_stdio_help_explains_the_four_variables(capsys: pytest.CaptureFixture[str]) -> None:
    """A developer configures their agent from this text."""
    with pytest.raises(SystemExit):
        main(["stdio", "--help"])
    text = capsys.readouterr().out
    for name in ("FMSG_API_URL", "FMSG_API_KEY", "FMSG_DEFAULT_DOMAIN", "FMSG_DIRECTORY"):
        assert name in text


def test_keygen_makes_a_key_that_seals(capsys: pytest.CaptureFixture[str]) -> None:
    """What it prints is what FMSG_SEAL_KEY takes."""
    assert main(["keygen"]) == 0
    keys = SealKeys.parse(capsys.readouterr().out)
    assert keys.open(keys.seal(b"token", bound_to=b"c"), bound_to=b"c") == b"token"


@pytest.mark.parametrize("command", ["front", "daemon", "worker", "up"])
def test_a_missing_setting_is_named_and_ends_the_start(command: str) -> None:
    """Exit status 2, one line, the variable and the next step."""
    done = run(command)
    assert done.returncode == 2
    assert "FMSG_API_URL is not set" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_malformed_seal_key_ends_the_start_without_showing_it() -> None:
    """The operator learns which variable, not what was in it."""
    done = run(
        "daemon",
        FMSG_API_URL="http://127.0.0.1:9",
        FMSG_REDIS_URL="redis://127.0.0.1:9",
        FMSG_SEAL_KEY="c2hvcnQtc2VjcmV0",
    )
    assert done.returncode == 2
    assert "FMSG_SEAL_KEY" in done.stderr
    assert "keygen" in done.stderr
    assert "c2hvcnQ" not in done.stderr


def test_a_hosted_server_refuses_a_key_for_everybody() -> None:
    """FMSG-007: it must not be configured with a single FMSG_API_KEY."""
    done = run(
        "front",
        FMSG_API_URL="http://127.0.0.1:9",
        FMSG_REDIS_URL="redis://127.0.0.1:9",
        FMSG_SEAL_KEY=SealKeys.generate(),
        FMSG_API_KEY="fmsgk_abc_secretsecret",
    )
    assert done.returncode == 2
    assert "FMSG_API_KEY is set" in done.stderr
    assert "secretsecret" not in done.stderr


def test_a_bind_outside_loopback_needs_the_allowed_hosts() -> None:
    """It refuses to start instead of serving whoever finds it."""
    done = run(
        "up",
        "--host",
        "0.0.0.0",
        "--port",
        "0",
        FMSG_API_URL="http://127.0.0.1:9",
    )
    assert done.returncode == 2
    assert "FMSG_MCP_ALLOWED_HOSTS" in done.stderr
    assert "Traceback" not in done.stderr


def test_cleartext_to_another_machine_is_refused() -> None:
    """An API key does not cross a network unencrypted by accident."""
    done = run("daemon", FMSG_API_URL="http://api.example.com", FMSG_REDIS_URL="redis://127.0.0.1:9")
    assert done.returncode == 2
    assert "FMSG_API_URL" in done.stderr
    assert "FMSG_ALLOW_INSECURE_HTTP" in done.stderr


def test_redis_that_cannot_be_reached_is_named() -> None:
    """A fleet process that could never work says so at its start."""
    done = run(
        "daemon",
        FMSG_API_URL="http://127.0.0.1:9",
        FMSG_REDIS_URL="redis://:hunter2@127.0.0.1:9",
        FMSG_SEAL_KEY=SealKeys.generate(),
    )
    assert done.returncode == 2
    assert "Redis" in done.stderr or "redis" in done.stderr
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr
