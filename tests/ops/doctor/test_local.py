from __future__ import annotations

from pathlib import Path

import pytest

from ledger.seal import SealKeys
from ops.doctor.findings import Finding
from ops.doctor.local import FEEDS, SPARE_FILES, check_admission, check_configuration, check_files, check_own_server
from ops.settings import Settings

FLEET = {
    "FMSG_API_URL": "https://api.example.com",
    "FMSG_REDIS_URL": "redis://127.0.0.1:6379/0",
    "FMSG_SEAL_KEY": SealKeys.generate(),
}
STDIO = {"FMSG_API_URL": "https://api.example.com", "FMSG_API_KEY": "fmsgk_c2VjcmV0"}


def faults(environ: dict[str, str], role: str) -> list[Finding]:
    return [one for one in check_configuration(environ, role=role).findings if one.level != "ok"]


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("environ", "role"), [(STDIO, "stdio"), *((FLEET, role) for role in ("fleet", "front", "daemon", "worker"))]
)
def test_what_a_role_needs_is_enough(environ: dict[str, str], role: str) -> None:
    found = only(list(check_configuration(environ, role=role).findings))
    assert (found.level, found.came) == ("ok", f"{len(environ)} are set and understood")


@pytest.mark.parametrize(("role", "told"), [("front", True), ("up", True), ("fleet", True), ("daemon", False)])
def test_traces_that_are_asked_for_and_cannot_be_had_are_told(role: str, told: bool) -> None:
    traces = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    found = faults({**FLEET, **traces}, role)
    assert [one.tried for one in found] == (["ask for traces"] if told else [])
    assert all(one.level == "warning" and "4318" in one.do for one in found)


def test_up_needs_the_host_alone() -> None:
    assert faults({"FMSG_API_URL": "https://api.example.com"}, "up") == []


@pytest.mark.parametrize(
    ("role", "missing"),
    [
        ("stdio", ["FMSG_API_URL", "FMSG_API_KEY"]),
        ("up", ["FMSG_API_URL"]),
        ("front", ["FMSG_API_URL", "FMSG_REDIS_URL", "FMSG_SEAL_KEY"]),
    ],
)
def test_what_is_missing_is_named(role: str, missing: list[str]) -> None:
    found = faults({}, role)
    assert [one.tried for one in found] == [f"read {name}" for name in missing]
    assert all(one.level == "failure" and one.do for one in found)


def test_up_is_one_process_and_needs_a_server_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    found = only(faults({"FMSG_API_URL": "https://api.example.com", "FMSG_MCP_WORKERS": "2"}, "up"))
    assert (found.level, found.tried) == ("failure", "read FMSG_MCP_WORKERS")
    assert faults({**FLEET, "FMSG_MCP_WORKERS": "2"}, "front") == []
    assert check_own_server().level == "ok"
    monkeypatch.setattr("ledger.embedded.find_servers", lambda: iter(()))
    missing = check_own_server()
    assert missing.level == "failure"
    assert "FMSG_REDIS_URL" in missing.do


def test_every_mistake_is_shown_at_once_and_the_rest_still_counts() -> None:
    environ = {
        **FLEET,
        "FMSG_MCP_PORT": "http",
        "FMSG_LOG_FORMAT": "xml",
        "FMSG_API_URI": "x",
        "FMSG_IDLE_MINUTES": "5",
    }
    configuration = check_configuration(environ, role="fleet")
    told = {one.tried: one for one in configuration.findings}
    assert set(told) == {"read FMSG_MCP_PORT", "read FMSG_LOG_FORMAT", "look FMSG_API_URI up"}
    assert "not a whole number" in told["read FMSG_MCP_PORT"].came
    assert "Did you mean FMSG_API_URL?" in told["look FMSG_API_URI up"].came
    assert told["look FMSG_API_URI up"].level == "warning"
    assert configuration.settings.idle_minutes == 5


@pytest.mark.parametrize("role", ["front", "up", "fleet"])
def test_a_hosted_server_with_a_key_is_refused(role: str) -> None:
    found = only(faults({**FLEET, "FMSG_API_KEY": "fmsgk_c2VjcmV0"}, role))
    assert (found.level, found.tried) == ("failure", "read FMSG_API_KEY")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("FMSG_API_URL", "api.example.com", "neither https:// nor http://"),
        ("FMSG_API_URL", "http://api.example.com", "cleartext"),
        ("FMSG_REDIS_URL", "http://127.0.0.1", "scheme"),
        ("FMSG_QUEUE_REDIS_URL", "redis+cluster://127.0.0.1", "Cluster cannot hold the job queue"),
        ("FMSG_REDIS_PREFIX", "a{b", "braces"),
        ("FMSG_SEAL_KEY", "c2hvcnQ=", "5 bytes instead of 32"),
        ("FMSG_DEFAULT_DOMAIN", "not a domain", "is not a domain"),
        ("FMSG_DIRECTORY", "/nonexistent/directory.json", "/nonexistent/directory.json"),
        ("FMSG_MCP_DOWNLOAD_DIR", "/nonexistent", "is no directory"),
    ],
)
def test_a_value_that_cannot_be_used_is_a_failure(name: str, value: str, told: str) -> None:
    found = only(faults({**FLEET, name: value}, "worker"))
    assert found.level == "failure"
    assert told in found.came
    assert found.do


def test_cleartext_that_was_asked_for_is_a_warning() -> None:
    environ = {**FLEET, "FMSG_API_URL": "http://api.example.com", "FMSG_ALLOW_INSECURE_HTTP": "1"}
    found = only(faults(environ, "daemon"))
    assert (found.level, found.tried) == ("warning", "read FMSG_API_URL")


def test_a_password_in_the_wrong_place_is_not_quoted() -> None:
    found = only(faults({**FLEET, "FMSG_REDIS_URL": "redis://:hun/ter/two@127.0.0.1"}, "daemon"))
    assert not any(part in found.came for part in ("hun", "ter/", "two"))
    assert "percent-encode" in found.do


def test_a_directory_that_cannot_be_written_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    found = only(faults({**STDIO, "FMSG_MCP_DOWNLOAD_DIR": str(tmp_path)}, "stdio"))
    assert (found.level, found.came) == ("failure", f"{tmp_path} cannot be written to by this user")


@pytest.mark.parametrize(
    ("role", "most", "level"),
    [
        ("stdio", 256, "ok"),
        ("stdio", 100, "warning"),
        ("worker", 256, "ok"),
        ("daemon", FEEDS + SPARE_FILES, "ok"),
        ("daemon", FEEDS, "warning"),
        ("daemon", 1024, "warning"),
        ("front", 1024, "warning"),
        ("fleet", 20_320, "ok"),
        ("up", 20_320, "warning"),
        ("up", 65_536, "ok"),
        ("daemon", -1, "ok"),
        ("daemon", 2**63 - 1, "ok"),
    ],
)
def test_files_enough_for_what_is_held(role: str, most: int, level: str) -> None:
    found = check_files(Settings(), role=role, limits=(most, most))
    assert found.level == level
    assert ("any number may be open" in found.came) == (most < 0 or most > 2**60)
    assert ("LimitNOFILE" in found.do) == (level == "warning")


@pytest.mark.parametrize(
    ("role", "lowered"), [("daemon", False), ("worker", False), ("front", True), ("up", True), ("fleet", True)]
)
def test_only_a_front_is_told_of_the_setting_that_wants_files(role: str, lowered: bool) -> None:
    found = check_files(Settings(), role=role, limits=(100, 200))
    assert ("FMSG_MCP_MAX_WAITS" in found.do) == lowered


@pytest.mark.parametrize(("role", "level"), [("front", "ok"), ("daemon", "ok"), ("up", "ok"), ("stdio", "warning")])
def test_what_a_part_raises_itself_counts_as_it_may_be(role: str, level: str) -> None:
    assert check_files(Settings(), role=role, limits=(100, 65_536)).level == level


def test_the_limit_of_this_process_is_looked_up() -> None:
    assert check_files(Settings(), role="daemon").level in ("ok", "warning")


def test_a_system_without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    assert check_files(Settings(), role="daemon").level == "skipped"


class TestAdmission:
    def test_a_public_bind_without_names_is_a_failure(self) -> None:
        found = only(check_admission(Settings(host="0.0.0.0"), mcp_url=None))
        assert found.level == "failure"
        assert "FMSG_MCP_ALLOWED_HOSTS is not set" in found.came

    @pytest.mark.parametrize(
        ("settings", "told"),
        [
            (Settings(), "others are refused"),
            (Settings(allowed_hosts=("mcp.example.com",)), "[::1] and mcp.example.com"),
            (Settings(host="0.0.0.0", allowed_hosts=("mcp.example.com",)), "served are mcp.example.com"),
        ],
    )
    def test_who_is_served_is_said(self, settings: Settings, told: str) -> None:
        found = only(check_admission(settings, mcp_url=None))
        assert found.level == "ok"
        assert told in found.came

    @pytest.mark.parametrize(
        "settings",
        [
            Settings(allowed_origins=("example.com",)),
            Settings(trusted_proxies=("the proxy",)),
            Settings(allowed_hosts=("http://x",)),
        ],
    )
    def test_lists_that_cannot_be_read_are_failures(self, settings: Settings) -> None:
        assert only(check_admission(settings, mcp_url=None)).level == "failure"

    @pytest.mark.parametrize(
        ("url", "level"),
        [
            ("https://mcp.example.com/mcp", "ok"),
            ("https://mcp.example.com:8443/mcp", "ok"),
            ("http://localhost:3000/mcp", "ok"),
            ("https://other.example.com/mcp", "warning"),
            ("https://münchen.example/mcp", "warning"),
        ],
    )
    def test_a_clients_url_is_tried_on_the_list(self, url: str, level: str) -> None:
        found = only(check_admission(Settings(allowed_hosts=("mcp.example.com",)), mcp_url=url))
        assert found.level == level
        assert ("421" in found.came) == (level == "warning")
