"""`ops.settings`: every variable parsed, every mistake named."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from daemon.settings import DaemonSettings
from mcp_front.settings import Budgets, FrontSettings, budget_name
from ops import configuration_doc, parts, stdio_settings
from ops.settings import SettingError, Settings, load, unknown, variables

OPS = Path(configuration_doc.__file__).parent


def test_an_empty_environment_gives_the_defaults() -> None:
    """Nothing is required to load; commands ask for what they need."""
    assert load({}) == Settings()


def test_values_are_parsed_by_type() -> None:
    """Text, numbers, lists, switches and choices."""
    settings = load(
        {
            "FMSG_API_URL": " https://api.example.com ",
            "FMSG_MCP_PORT": "8080",
            "FMSG_MCP_ALLOWED_HOSTS": "mcp.example.com, mcp.example.net,",
            "FMSG_ALLOW_INSECURE_HTTP": "true",
            "FMSG_LOG_FORMAT": "JSON",
            "FMSG_MCP_WAIT_MAX_SECONDS": "100.5",
            "FMSG_METRICS_PORT": "0",
            "FMSG_DEFAULT_DOMAIN": "",
        }
    )
    assert settings.api_url == "https://api.example.com"
    assert settings.port == 8080
    assert settings.allowed_hosts == ("mcp.example.com", "mcp.example.net")
    assert settings.allow_insecure_http is True
    assert settings.log_format == "json"
    assert settings.wait_max_s == 100.5
    assert settings.metrics_port == 0
    assert settings.default_domain is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FMSG_MCP_PORT", "eighty"),
        ("FMSG_MCP_PORT", "80.5"),
        ("FMSG_MCP_PORT", "-1"),
        ("FMSG_MCP_PORT", "65536"),
        ("FMSG_METRICS_PORT", "70000"),
        ("FMSG_IDLE_MINUTES", "nan"),
        ("FMSG_IDLE_MINUTES", "inf"),
        ("FMSG_ALLOW_INSECURE_HTTP", "maybe"),
        ("FMSG_LOG_FORMAT", "xml"),
        ("FMSG_METRICS_PORT", "none"),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, value: str) -> None:
    """The error names the variable and what was given."""
    with pytest.raises(SettingError, match=name) as caught:
        load({name: value})
    assert value in str(caught.value)


def test_the_default_wait_never_exceeds_the_longest() -> None:
    """An operator who lowers the cap need not know of the default."""
    assert load({"FMSG_MCP_WAIT_MAX_SECONDS": "20"}).wait_default_s == 20


def test_an_unknown_variable_is_pointed_out() -> None:
    """A typo costs a sentence, not an evening."""
    assert unknown({"FMSG_MCP_PROT": "1", "PATH": "/bin", "FMSG_API_URL": "x"}) == [
        "FMSG_MCP_PROT is not a setting and is ignored. Did you mean FMSG_MCP_PORT?"
    ]


def test_missing_essentials_say_what_to_do() -> None:
    """The next step is part of the error."""
    with pytest.raises(SettingError, match="FMSG_API_URL is not set"):
        Settings().need_api_url()
    with pytest.raises(SettingError, match="fmsg-mcpd up"):
        Settings().need_redis_url()


def test_every_budget_has_its_variable_and_default() -> None:
    """A budget's error names a variable; that variable exists and starts from the same figure."""
    names = {variable.name: (field, default) for field, variable, _, default in variables()}
    for field in msgspec.structs.fields(Budgets):
        assert names[budget_name(field.name)] == (field.name, field.default)


def test_what_a_daemon_is_told_has_its_own_default() -> None:
    """A daemon without a variable does what `DaemonSettings` says, and no variable is left that nobody heeds."""
    assert parts.daemon_settings(Settings()) == DaemonSettings()


def test_a_waiting_caller_is_not_idle() -> None:
    """Where idle sockets are closed soon, callers are reported active sooner."""
    assert stdio_settings.activate_s(Settings()) == FrontSettings().activate_s
    assert stdio_settings.activate_s(msgspec.structs.replace(Settings(), idle_minutes=2.0)) <= 60.0


def test_every_variable_is_heeded() -> None:
    """A setting that no code reads is a promise that nobody keeps."""
    sources = "".join(path.read_text() for path in OPS.glob("*.py") if path.name != "settings.py")
    fields = {field for field, _, _, _ in variables()} - set(Budgets.__struct_fields__)
    assert {field for field in fields if not re.search(rf"settings\.{field}\b", sources)} == set()


def test_the_page_of_settings_is_current() -> None:
    """docs/configuration.md is what the settings say: run python -m ops.configuration_doc."""
    assert configuration_doc.PATH.read_text() == configuration_doc.render()
