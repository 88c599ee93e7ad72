"""The wheel: it takes one name in an environment, and works beside a distribution that has a `daemon` of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEIGHBOURS = Path(sys.prefix) / "neighbours"
"""The wheels of `neighbours.lock`, which `make setup` downloads."""


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command without our own settings and with nothing of this checkout on the path."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("FMSG_", "PYTHON"))}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**inherited, **(env or {})},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout."""
    directory = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory, cwd=ROOT)
    assert built.returncode == 0, built.stderr
    (path,) = directory.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and python-daemon; what both need is taken from the one the tests run in."""
    home = tmp_path_factory.mktemp("environment")
    made = run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    assert made.returncode == 0, made.stderr
    neighbours = sorted(NEIGHBOURS.glob("*.whl"))
    assert neighbours, f"no wheels in {NEIGHBOURS}: run `make setup` once more"
    pip = (sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install", "--no-index", "--no-deps")
    installed = run(*pip, "--quiet", wheel, *neighbours, cwd=home)
    assert installed.returncode == 0, installed.stderr
    (packages,) = home.glob("lib/*/site-packages")
    shared = {sysconfig.get_path(name) for name in ("purelib", "platlib")} | {
        path for path in sys.path if path.endswith("site-packages")
    }
    (packages / "shared.pth").write_text("".join(f"{path}\n" for path in sorted(shared)))
    return home


def test_the_wheel_takes_one_name(wheel: Path) -> None:
    """No other top-level name, so nothing of anybody else's can be overwritten."""
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"fmsg_mcpd"}


def test_the_page_of_the_sandbox_is_in_the_wheel(wheel: Path) -> None:
    """With the licences of what it was given."""
    names = set(zipfile.ZipFile(wheel).namelist())
    static = Path(__file__).parents[2] / "sandbox" / "page" / "static"
    for path in (path for path in static.rglob("*.*") if path.is_file()):
        assert f"fmsg_mcpd/sandbox/page/static/{path.relative_to(static).as_posix()}" in names
    assert "fmsg_mcpd/pages/style.css" in names


def test_what_stdio_answers_from_is_in_the_wheel(wheel: Path) -> None:
    """Else it starts, and its first answer fails."""
    prepared = zipfile.ZipFile(wheel).read("fmsg_mcpd/mcp_front/stdio/prepared.json")
    assert prepared == (ROOT / "mcp_front" / "stdio" / "prepared.json").read_bytes()


def test_the_packages_page_has_no_link_that_leads_nowhere(wheel: Path) -> None:
    """The README is the page of the package, where there are no files beside it."""
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = archive.read(name).decode()
    page = metadata.partition("\n\n")[2]
    assert page.startswith("# fmsg-mcpd")
    links = [part.partition(")")[0] for part in page.split("](")[1:]]
    assert links
    assert all(link.startswith(("https://", "#")) for link in links), links
    assert "Project-URL: Homepage, https://" in metadata


def test_the_other_daemon_still_works(environment: Path, tmp_path: Path) -> None:
    """python-daemon's package is its own."""
    code = "import daemon; print(daemon.DaemonContext.__module__)"
    found = run(environment / "bin" / "python", "-c", code, cwd=tmp_path)
    assert found.stdout.strip() == "daemon.daemon", found.stderr


@pytest.mark.parametrize("command", [("fmsg-mcpd",), ("python", "-m", "fmsg_mcpd")], ids="-".join)
def test_the_command_works(environment: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    """Under both of its names, from any directory."""
    shown = run(environment / "bin" / command[0], *command[1:], "--version", cwd=tmp_path)
    assert (shown.returncode, shown.stdout[:10]) == (0, "fmsg-mcpd "), shown.stderr


@pytest.mark.processes
def test_a_fleet_of_installed_processes_converses(environment: Path, tmp_path: Path) -> None:
    """`demo` starts every part as a process of its own: beside the other `daemon`."""
    shown = run(environment / "bin" / "fmsg-mcpd", "demo", cwd=tmp_path)
    assert shown.returncode == 0, shown.stdout + shown.stderr


@pytest.mark.processes
def test_an_installed_stdio_server_lists_its_tools(environment: Path, tmp_path: Path) -> None:
    """What an agent's host starts."""
    lines = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    served = subprocess.run(
        [environment / "bin" / "fmsg-mcpd", "stdio"],
        cwd=tmp_path,
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    answers = {answer["id"]: answer for answer in map(json.loads, served.stdout.splitlines())}
    assert "wait_for_message" in {tool["name"] for tool in answers[2]["result"]["tools"]}
