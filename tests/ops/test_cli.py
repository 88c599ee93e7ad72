"""`ops.cli`: every command explains itself, and a mistake in the environment is a sentence, not a traceback."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.seal import SealKeys
from ops.cli import main, parser
from ops.processes import Child
from ops.sandboxed import readable
from ops.settings import variables


def commands() -> list[str]:
    """The names of all commands."""
    (action,) = (item for item in parser()._actions if isinstance(item, argparse._SubParsersAction))
    return list(action.choices)


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a process, with none of our own settings."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("FMSG_")}
    return subprocess.run(
        [sys.executable, "-m", "fmsg_mcpd", *arguments],
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
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("command", ["demo", "bench", "up"])
def test_a_machine_without_redis_is_told_how_to_get_one(command: str) -> None:
    code = (
        "import sys, ledger.embedded; ledger.embedded.find_servers = lambda: iter(())\n"
        "from ops.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, command],
        env={**os.environ, "FMSG_API_URL": "http://127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode in (1, 2)
    assert "redis-server: not found" in said
    assert "apt install redis-server" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completions_know_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(command in script for command in commands())
    assert "data-dir" in script


def test_stdio_help_explains_the_variables_of_a_developer(capsys: pytest.CaptureFixture[str]) -> None:
    """A developer configures their agent from this text."""
    with pytest.raises(SystemExit):
        main(["stdio", "--help"])
    text = capsys.readouterr().out
    named = set(re.findall(r"FMSG_[A-Z_]+", text))
    assert {"FMSG_API_URL", "FMSG_API_KEY", "FMSG_DEFAULT_DOMAIN", "FMSG_DIRECTORY"} <= named
    assert {"FMSG_MCP_DOWNLOAD_DIR", "FMSG_MCP_UPLOAD_DIR"} <= named
    assert named <= {variable.name for _, variable, _, _ in variables() if "stdio" in variable.roles}


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
    """It refuses to start instead of serving anybody who finds it."""
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


def test_settings_are_looked_at_before_a_server_is_started(tmp_path: Path) -> None:
    """One mistake after the other would else cost a Redis each, and one without Redis would hear of that first."""
    done = run("up", FMSG_API_URL="nonsense", PATH=os.fspath(tmp_path))
    assert done.returncode == 2
    assert "FMSG_API_URL: it begins with" in done.stderr
    assert "redis" not in done.stderr


def test_a_directory_for_a_redis_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """With both, an operator would believe that the data is there."""
    data = os.fspath(tmp_path / "data")
    done = run("up", "--data-dir", data, FMSG_API_URL="http://127.0.0.1:9", FMSG_REDIS_URL="redis://127.0.0.1:9")
    assert done.returncode == 2
    assert "--data-dir" in done.stderr
    assert "FMSG_REDIS_URL" in done.stderr


@pytest.mark.parametrize("port", ["65536", "-1", "http", "١"])
@pytest.mark.parametrize("command", ["front", "up", "sandbox"])
def test_what_is_no_port_is_refused(command: str, port: str, capsys: pytest.CaptureFixture[str]) -> None:
    """65536 is not taken for 0."""
    with pytest.raises(SystemExit) as ended:
        main([command, f"--port={port}"])
    assert ended.value.code == 2
    assert "is no port" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["sandbox", "up"])
def test_a_port_that_is_taken_is_named(command: str) -> None:
    """Which of several it was, and how to choose another."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run(command, "--port", port, FMSG_API_URL="http://127.0.0.1:9")
    assert done.returncode == 2
    assert f"127.0.0.1 port {port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_metrics_port_that_is_taken_is_named() -> None:
    """It is another variable than the port agents use."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run("up", "--port", "0", FMSG_API_URL="http://127.0.0.1:9", FMSG_METRICS_PORT=port)
    assert done.returncode == 2
    assert f"port {port} (FMSG_METRICS_HOST, FMSG_METRICS_PORT)" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--domain", "a.test", "--domain", "A.test"), "given twice"),
        (("--domain", "a.test", "--address", "@ann@b.test"), "@ann@b.test belongs to none"),
        (("--address", "ann"), "is not an fmsg address"),
        (("--domain", "no domain"), "'no domain' cannot be a domain"),
        (("--domain", "@here.test"), "'@here.test' cannot be a domain"),
    ],
)
def test_a_sandbox_that_cannot_be_is_a_sentence(arguments: tuple[str, ...], said: str) -> None:
    """Not a traceback."""
    done = run("sandbox", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_sandbox_prints_the_keys_asked_for(tmp_path: Path) -> None:
    """All that an agent needs to try the server without a host."""
    child = await Child.start("sandbox", "sandbox", "--json", "--address", "@ann@here.test", env={}, log_dir=tmp_path)
    try:
        (announced,) = await child.announcement("url")
    finally:
        await child.stop()
    assert announced["domain"] == "here.test"
    assert announced["keys"]["@ann@here.test"].startswith("fmsgk_")


def test_what_a_person_reads_of_a_sandbox() -> None:
    keys = {"@ann@here.test": "fmsgk_1_a", "@benjamin@here.test": "fmsgk_2_b"}
    assert readable({"domain": "here.test", "url": "http://h:1", "control": "http://h:2/_sandbox", "keys": keys}) == (
        "here.test\n"
        "  Web API  http://h:1\n"
        "  Control  http://h:2/_sandbox\n"
        "  Keys     @ann@here.test       fmsgk_1_a\n"
        "           @benjamin@here.test  fmsgk_2_b\n"
    )


def test_a_person_who_starts_a_sandbox_without_addresses_hears_how_to_get_one() -> None:
    shown = on_a_terminal("sandbox", until="Ctrl-C")
    assert "There is no address yet: make one with its key on the page, or start again with --address" in shown


def test_a_person_who_starts_a_server_reads_words_and_no_json() -> None:
    shown = on_a_terminal("up", "--port", "0", until="metrics port|mcp url", FMSG_API_URL="http://127.0.0.1:9")
    assert re.search(r"mcp url: http://127\.0\.0\.1:\d+/mcp", shown)
    assert "{" not in shown


def on_a_terminal(*arguments: str, until: str, **env: str) -> str:
    """What a command shows on a terminal, up to a line that matches; then it gets a Ctrl-C."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("FMSG_")}
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "fmsg_mcpd", *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**inherited, **env}) as process:
        os.close(theirs)
        shown = b""
        try:
            while not re.search(until, shown.decode()):
                shown += os.read(ours, 4096)
        finally:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(OSError):  # It has closed the terminal.
                while part := os.read(ours, 4096):
                    shown += part
            os.close(ours)
    return shown.decode()


async def test_packages_of_our_names_where_the_user_is_are_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many a project has a directory `ops`; commands that start others work there, too."""
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "__init__.py").write_text("raise RuntimeError('not ours')")
    monkeypatch.chdir(tmp_path)
    child = await Child.start("sandbox", "sandbox", "--json", env={}, log_dir=tmp_path)
    try:
        assert await child.announcement("url")
    finally:
        await child.stop()


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
