"""Prometheus' configuration and rules, and the Grafana dashboard: what they name exists, and every alert is tried."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from daemon.feed.machine import State
from telemetry import metrics
from tests.ops.deploy_files import DEPLOY, ROOT, TARGET_LABELS, check_expression, exported, load_yaml, run, tool

PROMETHEUS = DEPLOY / "prometheus"
GRAFANA = DEPLOY / "grafana"

RULES: list[dict[str, Any]] = [
    rule for group in load_yaml(PROMETHEUS / "rules.yml")["groups"] for rule in group["rules"]
]
TESTS: list[dict[str, Any]] = load_yaml(PROMETHEUS / "rules_test.yml")["tests"]
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboard.json").read_text())
JOBS = {job["job_name"] for job in load_yaml(PROMETHEUS / "prometheus.yml")["scrape_configs"]}
NAMES = [rule["alert"] for rule in RULES]


def panels() -> list[dict[str, Any]]:
    """The panels that show something."""
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    """Everything that is asked of Prometheus."""
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [*(rule["expr"] for rule in RULES), *shown]


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_goes_by_series_that_exist_and_leads_to_the_runbook(rule: dict[str, Any]) -> None:
    check_expression(rule["expr"])
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_is_seen_firing_and_silent(name: str) -> None:
    tried = [trial for test in TESTS for trial in test["alert_rule_test"] if trial["alertname"] == name]
    assert {bool(trial.get("exp_alerts")) for trial in tried} == {True, False}


def test_the_runbook_has_a_section_per_alert_and_no_other() -> None:
    headings = re.findall(r"^### (Fmsg\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(NAMES)


def test_the_runbook_names_panels_that_there_are() -> None:
    prose = re.sub(r"^ *```.*?^ *```", "", (ROOT / "docs" / "runbook.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    named = {name for name in re.findall(r'"([A-Z][^"\n]+)"', prose) if not name.endswith(".")}
    assert len(named) > 5
    assert named <= {panel["title"] for panel in panels()}


def test_no_label_is_one_that_prometheus_gives_itself() -> None:
    """It would move ours out of the way, to `exported_job`, and `sum by (job)` would mean something else."""
    for name, series in exported().items():
        assert not series.labels & TARGET_LABELS, name


def test_the_states_of_feeds_that_are_asked_for_exist() -> None:
    named = [part for expression in expressions() for part in re.findall(r'state[=!]~"([^"]+)"', expression)]
    assert named
    assert {state for alternatives in named for state in alternatives.split("|")} <= {state.value for state in State}


def test_the_jobs_that_are_asked_for_are_scraped() -> None:
    for expression in expressions():
        assert set(re.findall(r'[{ ,]job="([^"]+)"', expression)) <= JOBS


def test_waits_are_near_the_budget_that_the_fronts_tell() -> None:
    """An operator who changes `FMSG_MCP_MAX_WAITS` changes the alert with it."""
    (rule,) = (rule for rule in RULES if rule["alert"] == "FmsgWaitsNearBudget")
    assert {"fmsg_mcpd_waits_held", "fmsg_mcpd_waits_budget"} <= check_expression(rule["expr"])
    assert not re.search(r"\d{3}", rule["expr"])


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_shows_series_that_exist(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        check_expression(target["expr"])
        labels = set(re.findall(r"{{(\w+)}}", target.get("legendFormat", "")))
        grouped = {
            label.strip() for group in re.findall(r"\bby \(([^)]*)\)", target["expr"]) for label in group.split(",")
        }
        assert labels <= grouped | {"job", "instance"}


def test_every_metric_is_on_the_dashboard() -> None:
    shown = set().union(*(check_expression(target["expr"]) for panel in panels() for target in panel["targets"]))
    for metric in vars(metrics).values():
        name = getattr(metric, "_name", None)
        if name is not None:
            assert any(series.startswith(name) for series in shown), name


def test_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert all(0 <= x < 24 for x, _ in cells)
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_grafana_is_told_where_everything_is() -> None:
    (source,) = load_yaml(GRAFANA / "provisioning" / "datasources" / "prometheus.yaml")["datasources"]
    assert source["type"] == DASHBOARD["templating"]["list"][0]["query"]
    (provider,) = load_yaml(GRAFANA / "provisioning" / "dashboards" / "fmsg-mcpd.yaml")["providers"]
    compose = load_yaml(ROOT / "compose.yaml")["services"]
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in compose
    targets = [Path(volume.split(":")[1]) for volume in compose["grafana"]["volumes"]]
    assert Path(provider["options"]["path"]) / "dashboard.json" in targets


def test_prometheus_scrapes_the_services_of_compose() -> None:
    services = load_yaml(ROOT / "compose.yaml")["services"]
    for job in load_yaml(PROMETHEUS / "prometheus.yml")["scrape_configs"]:
        (found,) = job["dns_sd_configs"]
        assert set(found["names"]) <= set(services)


def test_promtool_accepts_the_configuration() -> None:
    run(tool("promtool"), "check", "config", PROMETHEUS / "prometheus.yml")


def test_promtool_sees_every_alert_fire() -> None:
    run(tool("promtool"), "test", "rules", PROMETHEUS / "rules_test.yml")
