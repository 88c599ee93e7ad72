from __future__ import annotations

import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from ops.conformance import run


def test_one_revision_of_each_era_is_run() -> None:
    assert set(run.VERSIONS) == {LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION}


@pytest.mark.parametrize("version", run.VERSIONS)
def test_what_does_not_apply_is_listed_once(version: str) -> None:
    listed: dict[str, list[str]] = yaml.safe_load((run.HERE / f"expected-{version}.yaml").read_text())
    assert list(listed) == ["server"]
    assert len(listed["server"]) == len(set(listed["server"])) > 0


@pytest.mark.parametrize(("statuses", "worst"), [((0, 0, 0), 0), ((1, 0, 0), 1), ((0, 1, 0), 1), ((0, 0, 1), 1)])
def test_the_worst_status_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, statuses: tuple[int, int, int], worst: int
) -> None:
    ran: list[list[str]] = []
    left = list(statuses)

    def pretend(command: list[Any], **options: Any) -> subprocess.CompletedProcess[bytes]:
        ran.append([str(part) for part in command])
        return subprocess.CompletedProcess(command, 0 if "npm" in command else left.pop(0))

    monkeypatch.setattr(run, "TOOLS", tmp_path / "tools")
    monkeypatch.setattr(run, "_listening", _Listening)
    monkeypatch.setattr("subprocess.run", pretend)
    assert run.main() == worst
    assert ran[0][:2] == ["npm", "install"]
    assert [command[command.index("--spec-version") + 1] for command in ran[1:3]] == list(run.VERSIONS)
    assert all("http://127.0.0.1:1/mcp" in command for command in ran[1:3])
    assert "tests.contract.conformance_sign_in" in ran[3]


class _Listening:
    def __enter__(self) -> str:
        return "http://127.0.0.1:1/mcp"

    def __exit__(self, *_: object) -> None:
        return None


@pytest.mark.processes
def test_the_listener_is_open_to_the_runner_which_has_no_key() -> None:
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    with (
        run._listening() as url,
        urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer,
    ):
        told = answer.read()
    assert b"wait_for_message" in told
    assert b"test_simple_text" in told
