"""The systemd units."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from daemon.daemon import CLOSE_WITHIN_S, LEAVE_WITHIN_S
from daemon.pacing import steady_per_s
from daemon.settings import DaemonSettings
from ledger.embedded import STOP_TIMEOUT_S
from mcp_front.settings import Budgets, HttpSettings
from ops.cli import parser
from ops.doctor.local import FEEDS, SPARE_FILES
from ops.settings import load
from tests.ops.deploy_files import CARRIED, DEPLOY, run, tool
from workers.settings import WorkerSettings

UNITS = DEPLOY / "systemd"
PARTS = ("front", "daemon", "worker")
UNIT_COMMANDS = (*PARTS, "up")
PROGRAM = "/opt/fmsg-mcpd/bin/fmsg-mcpd"


def unit_name(part: str) -> str:
    """The file of a part's unit. There is one `up` on a machine."""
    return "fmsg-mcpd-up.service" if part == "up" else f"fmsg-mcpd-{part}@.service"


def read_unit(part: str) -> dict[str, list[str]]:
    """The settings of a part's unit, each with all its values."""
    settings: dict[str, list[str]] = {}
    for line in (UNITS / unit_name(part)).read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            settings.setdefault(name, []).append(value)
    return settings


def environment(part: str, instance: str) -> dict[str, str]:
    """The environment of an instance."""
    words = " ".join(read_unit(part)["Environment"]).replace("%i", instance).split()
    return dict(word.split("=", 1) for word in words)


@pytest.mark.parametrize("part", UNIT_COMMANDS)
def test_a_unit_runs_its_command(part: str) -> None:
    (start,) = read_unit(part)["ExecStart"]
    program, *arguments = start.split()
    assert program == PROGRAM
    parser().parse_args(arguments)
    assert arguments[0] == part


def test_the_all_in_one_keeps_its_data_where_its_unit_may_write() -> None:
    unit = read_unit("up")
    options = parser().parse_args(unit["ExecStart"][0].split()[1:])
    assert options.data_dir == f"/var/lib/{unit['StateDirectory'][0]}"
    assert unit["StateDirectoryMode"] == ["0700"]
    assert unit["KillMode"] == ["mixed"], "its Redis must not be stopped before it"
    assert float(unit["TimeoutStopSec"][0]) > HttpSettings().drain_s + CLOSE_WITHIN_S + STOP_TIMEOUT_S


@pytest.mark.parametrize("part", UNIT_COMMANDS)
def test_a_wrong_setting_is_told_before_the_start(part: str) -> None:
    (before,) = read_unit(part)["ExecStartPre"]
    program, *arguments = before.split()
    assert program == PROGRAM
    options = parser().parse_args(arguments)
    assert (arguments[0], options.role, options.only) == ("doctor", part, ["configuration"])


def test_instances_have_ports_of_their_own() -> None:
    settings = [load(environment(part, instance)) for part in PARTS for instance in ("0", "1")]
    ports = [each.metrics_port for each in settings]
    assert len(set(ports)) == len(ports)
    assert [each.port for each in settings[:2]] == [3000, 3001]


def test_stopping_is_given_more_time_than_draining_takes() -> None:
    stop_s = {part: float(read_unit(part)["TimeoutStopSec"][0]) for part in PARTS}
    notice_s = load(environment("front", "0")).drain_notice_s
    drain_s = load(environment("daemon", "0")).daemon_drain_s
    assert stop_s["front"] > notice_s + HttpSettings().drain_s
    assert drain_s >= CARRIED / steady_per_s(DaemonSettings().connects_per_s)
    assert stop_s["daemon"] >= drain_s + CLOSE_WITHIN_S + LEAVE_WITHIN_S
    assert stop_s["worker"] > WorkerSettings().drain_s


def test_units_may_open_the_files_they_need() -> None:
    files = {part: int(read_unit(part)["LimitNOFILE"][0]) for part in UNIT_COMMANDS}
    assert files["front"] > 2 * Budgets().max_connections
    assert files["daemon"] > 2 * (FEEDS + SPARE_FILES)
    assert files["up"] > FEEDS + Budgets().max_waits + 2 * SPARE_FILES


@pytest.mark.parametrize("part", UNIT_COMMANDS)
def test_a_unit_gives_no_rights_away_and_leaves_no_core(part: str) -> None:
    unit = read_unit(part)
    assert unit["LimitCORE"] == ["0"]
    for name in ("DynamicUser", "NoNewPrivileges", "PrivateDevices", "PrivateTmp", "ProtectHome"):
        assert unit[name] == ["yes"], name
    assert unit["ProtectSystem"] == ["strict"]
    assert unit["CapabilityBoundingSet"] == [""]


def test_the_units_are_the_same_but_for_what_they_must_differ_in() -> None:
    own = {"Description", "Environment", "ExecStartPre", "ExecStart", "TimeoutStopSec", "LimitNOFILE"}
    alone = {"PartOf", "WantedBy", "EnvironmentFile", "StateDirectory", "StateDirectoryMode"}
    units = {part: read_unit(part) for part in UNIT_COMMANDS}
    front, *others = ({name: value for name, value in units[part].items() if name not in own} for part in PARTS)
    assert all(other == front for other in others)
    shared = {name: value for name, value in front.items() if name not in alone}
    assert shared == {name: value for name, value in units["up"].items() if name not in own | alone}


@pytest.mark.parametrize("kind", ["fleet", "up"])
def test_the_example_environment_can_be_loaded(kind: str) -> None:
    text = (UNITS / f"{kind}.env.example").read_text()
    values = dict(re.findall(r"^([A-Z_]+)=(.*)$", text, re.MULTILINE))
    settings = load(values)
    assert settings.api_url
    assert (settings.redis_url is not None) == (kind == "fleet")
    assert settings.allowed_hosts


@pytest.mark.parametrize("name", [*map(unit_name, UNIT_COMMANDS), "fmsg-mcpd.target"])
def test_systemd_accepts_the_unit(name: str, tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    # The program need not be installed where the test runs.
    unit = tmp_path / name
    unit.write_text((UNITS / name).read_text().replace(PROGRAM, "/bin/true"))
    assert run(analyze, "verify", unit) == ""
