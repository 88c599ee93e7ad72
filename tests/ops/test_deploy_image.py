"""The image and the fleet of compose.yaml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from daemon.daemon import CLOSE_WITHIN_S, LEAVE_WITHIN_S
from daemon.pacing import steady_per_s
from daemon.settings import DaemonSettings
from mcp_front.settings import Budgets, HttpSettings
from ops.cli import parser
from tests.ops.deploy_files import CARRIED, DEPLOY, ROOT, load_yaml, run, seconds, tool
from workers.settings import WorkerSettings

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = load_yaml(ROOT / "compose.yaml")
SERVICES: dict[str, Any] = COMPOSE["services"]
PARTS = ("front", "daemon", "worker")


def lines(keyword: str) -> list[str]:
    """The instructions of a kind, continued lines joined."""
    joined = re.sub(r"\\\n\s*", " ", DOCKERFILE)
    return [line.removeprefix(keyword).strip() for line in joined.splitlines() if line.startswith(f"{keyword} ")]


def test_the_image_has_two_stages_of_one_pinned_base() -> None:
    (default,) = lines("ARG")
    assert re.fullmatch(r"PYTHON=3\.\d+\.\d+-slim-\w+", default)
    assert [line.split()[0] for line in lines("FROM")] == ["python:${PYTHON}", "python:${PYTHON}"]


def test_the_image_runs_as_a_numbered_user_and_says_how_it_is() -> None:
    assert lines("USER") == ["10001:10001"]
    (check,) = lines("HEALTHCHECK")
    assert "/healthz" in check
    assert "FMSG_METRICS_PORT" in check
    assert "FMSG_METRICS_PORT=9100" in lines("ENV")[0]
    assert lines("STOPSIGNAL") == ["SIGTERM"]


def test_the_image_takes_nothing_that_the_lock_has_no_hash_of() -> None:
    download, install = (line for line in lines("RUN") if "pip" in line)
    assert "--require-hashes -r requirements-dev.lock" in download
    assert "--no-index --find-links /packages" in install


def test_the_image_gets_every_package_and_its_context_lets_them_in() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    copied = {word for line in lines("COPY") if "--from" not in line for word in line.split()[:-1]}
    assert packages <= copied
    assert {"README.md", *project["project"]["license-files"]} <= copied
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignore[0] == "*"
    assert copied == {line[1:] for line in ignore if line.startswith("!")}


def test_images_have_versions() -> None:
    for service in SERVICES.values():
        if "build" not in service:
            assert re.search(r":v?\d+\.\d+", service["image"]), service["image"]


@pytest.mark.parametrize("part", PARTS)
def test_each_part_runs_its_command(part: str) -> None:
    parser().parse_args(SERVICES[part]["command"])
    assert SERVICES[part]["command"] == [part]


def test_there_are_two_fronts_and_two_daemons() -> None:
    assert [SERVICES[part]["deploy"]["replicas"] for part in ("front", "daemon")] == [2, 2]


def test_parts_may_end_in_peace() -> None:
    notice_s = SERVICES["front"]["environment"]["FMSG_MCP_DRAIN_NOTICE_SECONDS"]
    grace_s = {part: seconds(SERVICES[part]["stop_grace_period"]) for part in PARTS}
    assert grace_s["front"] > notice_s + HttpSettings().drain_s
    drain_s = SERVICES["daemon"]["environment"]["FMSG_DAEMON_DRAIN_SECONDS"]
    assert drain_s >= CARRIED / steady_per_s(DaemonSettings().connects_per_s)
    assert grace_s["daemon"] >= drain_s + CLOSE_WITHIN_S + LEAVE_WITHIN_S
    assert grace_s["worker"] > WorkerSettings().drain_s


def test_parts_may_open_the_files_they_need() -> None:
    assert SERVICES["front"]["ulimits"]["nofile"] > Budgets().max_connections
    assert SERVICES["proxy"]["ulimits"]["nofile"] > 2 * Budgets().max_connections


@pytest.mark.parametrize("part", PARTS)
def test_parts_have_no_rights_they_do_not_need(part: str) -> None:
    service = SERVICES[part]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "ports" not in service


def test_the_file_that_holds_the_seal_key_is_kept_out_of_version_control() -> None:
    assert "> .env" in (ROOT / "compose.yaml").read_text()
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()
    assert "!.env" not in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()


def test_only_this_machine_gets_in() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_redis_is_reached_by_the_parts_alone_and_never_forgets_by_itself() -> None:
    assert COMPOSE["networks"]["store"]["internal"] is True
    assert {name for name, service in SERVICES.items() if "store" in service["networks"]} == {"redis", *PARTS}
    content = COMPOSE["configs"]["redis"]["content"]
    lines = dict(line.split(" ", 1) for line in content.splitlines() if not line.startswith("#"))
    assert (lines["maxmemory-policy"], lines["appendonly"]) == ("noeviction", "yes")
    assert SERVICES["redis"]["configs"] == [{"source": "redis", "target": SERVICES["redis"]["command"][-1]}]


def test_redis_asks_for_a_password_that_is_on_no_command_line() -> None:
    assert "requirepass ${REDIS_PASSWORD:?" in COMPOSE["configs"]["redis"]["content"]
    for part in PARTS:
        assert re.match(
            r"redis://:\$\{REDIS_PASSWORD:\?[^}]+\}@redis:6379/0$", SERVICES[part]["environment"]["FMSG_REDIS_URL"]
        )
    assert not any("PASSWORD" in word for word in SERVICES["redis"]["command"])
    assert "REDIS_PASSWORD=" in (ROOT / "compose.yaml").read_text().partition("name:")[0]


def test_the_image_can_run_everything_in_one() -> None:
    """It has a Redis server, and a directory for its data that belongs to the image's user."""
    (_, install) = (line for line in lines("RUN") if "pip" in line)
    assert "[embedded,tracing]" in install
    assert "install -d -o 10001 -g 10001 -m 0700 /data" in lines("RUN")


def test_only_the_network_of_the_fleet_sees_the_metrics_of_the_proxy() -> None:
    assert SERVICES["proxy"]["environment"]["METRICS"] == ":8405"
    assert not any("8405" in port for port in SERVICES["proxy"]["ports"])


def test_the_fronts_believe_the_proxy_of_their_network() -> None:
    (subnet,) = COMPOSE["networks"]["fleet"]["ipam"]["config"]
    assert SERVICES["front"]["environment"]["FMSG_MCP_TRUSTED_PROXIES"] == subnet["subnet"]


def test_every_mounted_file_exists() -> None:
    mounted = [volume for service in SERVICES.values() for volume in service.get("volumes", ())]
    for volume in mounted:
        source = volume.split(":")[0]
        assert (ROOT / source).exists() if source.startswith("./") else source in COMPOSE["volumes"], volume


def test_compose_accepts_the_file() -> None:
    docker = tool("docker")
    try:
        run(docker, "compose", "version")
    except AssertionError:
        pytest.skip("docker has no compose plugin")
    env = {"FMSG_API_URL": "https://fmsgapi.example.com", "FMSG_SEAL_KEY": "x", "REDIS_PASSWORD": "x"}
    run(docker, "compose", "-f", ROOT / "compose.yaml", "config", "--quiet", env=env)


def compose_schema(path: Path) -> str:
    """What the schema of the compose specification says to a file; fails the test where it refuses it."""
    return run(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", path)


def test_the_schema_of_compose_accepts_the_file() -> None:
    compose_schema(ROOT / "compose.yaml")


def test_the_schema_of_compose_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    text = (ROOT / "compose.yaml").read_text()
    (tmp_path / "compose.yaml").write_text(text.replace("stop_grace_period:", "grace_period:"))
    with pytest.raises(AssertionError, match="grace_period"):
        compose_schema(tmp_path / "compose.yaml")
