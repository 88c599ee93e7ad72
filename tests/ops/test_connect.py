"""`ops.connect`: what is pasted is what the clients read, and writing it loses nothing of theirs."""

from __future__ import annotations

import json
import shlex
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ops.cli import main, parser
from ops.connect import CLIENTS, KEY_PLACEHOLDER, ClientName, ConnectError, ServerTarget, snippet, snippets, write

KEY = "fmsgk_QUJD_c2VjcmV0Lys9"
LOCAL = ServerTarget(api_url="https://api.example.com", key=KEY)
HOSTED = ServerTarget(url="https://mcp.example.com/mcp", key=KEY)
every_client = pytest.mark.parametrize("name", list(CLIENTS))
with_file = pytest.mark.parametrize("name", [name for name, client in CLIENTS.items() if client.file])


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory and a working directory of the test's own."""
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for variable in ("FMSG_API_URL", "FMSG_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def entry(name: ClientName, path: Path) -> dict[str, Any]:
    """The server's entry in a client's file."""
    text = path.read_text()
    held = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    found = held[CLIENTS[name].container]["fmsg"]
    assert isinstance(found, dict)
    return found


@every_client
@pytest.mark.parametrize(
    "target", [ServerTarget(), ServerTarget(url="https://mcp.example.com/mcp")], ids=["local", "hosted"]
)
def test_what_is_pasted_can_be_read_by_the_client(name: ClientName, target: ServerTarget) -> None:
    shown = snippet(name, target)
    readers: dict[str, Callable[[str], object]] = {"json": json.loads, "toml": tomllib.loads, "sh": shlex.split}
    assert readers[shown.language](shown.text)
    wanted = target.url or "stdio"
    assert wanted in shown.text
    assert shown.where
    assert shown.then


def test_every_client_of_the_command_is_known() -> None:
    (choices,) = (action.choices for action in parser()._actions if hasattr(action, "_name_parser_map"))
    assert choices is not None
    (client,) = (action for action in choices["connect"]._actions if action.dest == "client")  # type: ignore[index]
    assert list(client.choices) == list(CLIENTS)
    assert [shown.client for shown in snippets(ServerTarget())] == list(CLIENTS)


def test_the_shell_lines_are_whole_words() -> None:
    assert shlex.split(snippet("claude-code", HOSTED).text)[-1] == f"Authorization: Bearer {KEY}"
    assert f"FMSG_API_KEY={KEY}" in shlex.split(snippet("inspector", LOCAL).text)


@with_file
@pytest.mark.parametrize("target", [LOCAL, HOSTED], ids=["local", "hosted"])
def test_written_into_a_file_that_is_not_there(name: ClientName, target: ServerTarget) -> None:
    path, copy = write(name, target, env={})
    assert copy is None
    found = entry(name, path)
    assert (target.url or target.command) in json.dumps(found)
    if KEY in path.read_text():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@with_file
def test_what_else_is_in_the_file_stays_and_is_kept_in_a_copy(name: ClientName, home: Path) -> None:
    path = write(name, LOCAL, env={})[0]
    if path.suffix == ".toml":
        before = 'model = "x"  # mine\n\n[mcp_servers.other]\ncommand = "other"'
    else:
        before = json.dumps({"theme": "dark", CLIENTS[name].container: {"other": {"command": "é"}}})
    path.write_text(before)
    path.chmod(0o640)
    path, copy = write(name, LOCAL, env={})
    assert copy is not None
    assert copy.read_text() == before
    after = path.read_text()
    held = tomllib.loads(after) if path.suffix == ".toml" else json.loads(after)
    assert set(held[CLIENTS[name].container]) == {"other", "fmsg"}
    assert held.get("theme", held.get("model")) in ("dark", "x")
    assert [item.name for item in path.parent.glob(f"{path.name}.new*")] == []


def test_an_entry_of_the_same_name_is_replaced(home: Path) -> None:
    write("cursor", LOCAL, env={})
    path, copy = write("cursor", HOSTED, env={})
    assert entry("cursor", path) == {
        "url": "https://mcp.example.com/mcp",
        "headers": {"Authorization": f"Bearer {KEY}"},
    }
    assert copy is not None
    second = write("cursor", LOCAL, env={})[1]
    assert second not in (None, copy)


def test_the_editor_is_asked_for_the_key_once(home: Path) -> None:
    path = write("vscode", LOCAL, env={})[0]
    write("vscode", HOSTED, env={})
    held = json.loads(path.read_text())
    assert [item["id"] for item in held["inputs"]] == ["fmsg-key"]
    assert KEY not in path.read_text()


def test_a_project_file_never_holds_the_key() -> None:
    assert KEY not in write("claude-code", LOCAL, env={})[0].read_text()
    assert KEY not in write("claude-code", HOSTED, env={})[0].read_text()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cursor", '{// mine\n"mcpServers": {}}'),
        ("cursor", "[]"),
        ("cursor", '{"mcpServers": []}'),
        ("vscode", '{"inputs": {}}'),
        ("codex", "[[["),
        ("codex", '[mcp_servers.fmsg]\ncommand = "mine"\n'),
    ],
)
def test_a_file_that_cannot_be_changed_safely_stays_as_it_is(name: ClientName, text: str) -> None:
    path = write(name, LOCAL, env={})[0]
    path.write_text(text)
    with pytest.raises(ConnectError, match=str(path)):
        write(name, LOCAL, env={})
    assert path.read_text() == text


def test_a_link_to_a_file_stays_a_link(home: Path) -> None:
    kept = home / "dotfiles.json"
    kept.write_text("{}")
    (home / ".cursor").mkdir()
    link = home / ".cursor" / "mcp.json"
    link.symlink_to(kept)
    write("cursor", LOCAL, env={})
    assert link.is_symlink()
    assert entry("cursor", kept)


def test_the_command_prints_a_placeholder_and_never_the_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FMSG_API_KEY", KEY)
    assert main(["connect", "--client", "gemini", "--url", "https://mcp.example.com/mcp"]) == 0
    shown = capsys.readouterr().out
    assert KEY not in shown
    assert KEY_PLACEHOLDER in shown


def test_writing_asks_for_what_is_missing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connect", "--client", "cursor", "--write"]) == 2
    said = capsys.readouterr().err
    assert "FMSG_API_URL" in said
    assert "FMSG_API_KEY" in said
    assert not (home / ".cursor").exists()


def test_writing_says_where(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FMSG_API_KEY", KEY)
    assert main(["connect", "--client", "codex", "--api-url", "https://api.example.com", "--write"]) == 0
    said = capsys.readouterr().out
    assert str(home / ".codex" / "config.toml") in said
    assert KEY not in said


def test_a_client_without_a_file_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FMSG_API_KEY", KEY)
    assert main(["connect", "--client", "inspector", "--api-url", "https://api.example.com", "--write"]) == 1
    assert "no file" in capsys.readouterr().err


@pytest.mark.parametrize("hosted", [False, True], ids=["local", "hosted"])
@every_client
def test_the_next_step_names_the_variable_where_the_client_reads_it(name: ClientName, *, hosted: bool) -> None:
    shown = snippet(name, HOSTED if hosted else LOCAL)
    assert ("from FMSG_API_KEY" in shown.then) == ((name, hosted) == ("codex", True))


def test_the_next_step_after_writing_a_projects_file_names_the_variable(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connect", "--client", "claude-code", "--url", "https://mcp.example.com/mcp", "--write"]) == 0
    assert "from FMSG_API_KEY" in capsys.readouterr().out


@pytest.mark.parametrize("client", ["claude-code", "cursor", "inspector"])
def test_a_command_that_path_does_not_have_is_named_by_its_path(
    client: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a checkout whose virtual environment is not active."""
    started = home / "checkout" / "fmsg-mcpd"
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.setattr("sys.argv", [str(started)])
    assert main(["connect", "--client", client]) == 0
    assert str(started) in capsys.readouterr().out
