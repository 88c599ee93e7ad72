"""The Kubernetes manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daemon.daemon import CLOSE_WITHIN_S, LEAVE_WITHIN_S
from daemon.pacing import steady_per_s
from daemon.settings import DaemonSettings
from ledger.seal import SealKeys
from mcp_front.settings import Budgets, FrontSettings, HttpSettings
from ops.cli import parser
from ops.settings import load
from tests.ops.deploy_files import CARRIED, DEPLOY, exported, load_all_yaml, load_yaml, run, seconds, tool
from workers.settings import WorkerSettings

HERE = DEPLOY / "kubernetes"
PARTS = ("front", "daemon", "worker")
KUSTOMIZATION: dict[str, Any] = load_yaml(HERE / "kustomization.yaml")
OBJECTS: list[dict[str, Any]] = [item for name in KUSTOMIZATION["resources"] for item in load_all_yaml(HERE / name)]


def find(kind: str, name: str | None = None) -> dict[str, Any]:
    """The one object of a kind (and name)."""
    (found,) = (item for item in OBJECTS if item["kind"] == kind and name in (None, item["metadata"]["name"]))
    return found


def pod(part: str) -> dict[str, Any]:
    """The pod of a part's deployment."""
    spec: dict[str, Any] = find("Deployment", part)["spec"]["template"]["spec"]
    return spec


def container(part: str) -> dict[str, Any]:
    """Its one container."""
    (only,) = pod(part)["containers"]
    return dict(only)


def labels(part: str) -> dict[str, str]:
    """The labels of a part's pods."""
    return dict(find("Deployment", part)["spec"]["template"]["metadata"]["labels"])


@pytest.mark.parametrize("part", PARTS)
def test_a_deployment_runs_its_command_in_the_image(part: str) -> None:
    assert container(part)["args"] == [part]
    parser().parse_args(container(part)["args"])
    assert [image["name"] for image in KUSTOMIZATION["images"]] == [container(part)["image"]]


@pytest.mark.parametrize("part", PARTS)
def test_selectors_select(part: str) -> None:
    wanted = find("Deployment", part)["spec"]["selector"]["matchLabels"].items()
    assert wanted <= labels(part).items()
    assert find("PodDisruptionBudget", part)["spec"]["selector"]["matchLabels"].items() <= labels(part).items()
    for other in set(PARTS) - {part}:
        assert not find("PodDisruptionBudget", part)["spec"]["selector"]["matchLabels"].items() <= labels(other).items()


@pytest.mark.parametrize("part", PARTS)
def test_probes_ask_a_port_there_is(part: str) -> None:
    ports = {port["name"]: port["containerPort"] for port in container(part)["ports"]}
    asked = {name: container(part)[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {name: probe["path"] for name, probe in asked.items()} == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz?exclude=redis" if part == "front" else "/readyz",
    }
    assert {probe["port"] for probe in asked.values()} == {"mcp" if part == "front" else "metrics"}
    assert asked["livenessProbe"]["port"] in ports
    assert ports["metrics"] == 9100
    if part == "front":
        assert ports["mcp"] == HttpSettings().port


def test_pods_may_end_in_peace() -> None:
    grace_s = {part: pod(part)["terminationGracePeriodSeconds"] for part in PARTS}
    sleep, pause = container("front")["lifecycle"]["preStop"]["exec"]["command"]
    assert sleep == "sleep"
    assert grace_s["front"] > float(pause) + HttpSettings().drain_s
    drain_s = next(
        float(entry["value"]) for entry in container("daemon")["env"] if entry["name"] == "FMSG_DAEMON_DRAIN_SECONDS"
    )
    assert drain_s >= CARRIED / steady_per_s(DaemonSettings().connects_per_s)
    assert grace_s["daemon"] >= drain_s + CLOSE_WITHIN_S + LEAVE_WITHIN_S
    assert grace_s["worker"] > WorkerSettings().drain_s


@pytest.mark.parametrize("part", PARTS)
def test_a_pod_has_no_rights_it_does_not_need(part: str) -> None:
    assert pod(part)["automountServiceAccountToken"] is False
    assert pod(part)["securityContext"]["runAsNonRoot"] is True
    assert pod(part)["securityContext"]["runAsUser"] == 10001
    security = container(part)["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}


def test_the_autoscaler_goes_by_a_metric_that_fronts_export() -> None:
    spec = find("HorizontalPodAutoscaler")["spec"]
    (metric,) = spec["metrics"]
    name = metric["pods"]["metric"]["name"]
    assert name in exported()
    assert int(metric["pods"]["target"]["averageValue"]) == Budgets().max_waits // 2
    assert spec["scaleTargetRef"]["name"] == "front"
    assert "replicas" not in find("Deployment", "front")["spec"]
    (rule,) = load_yaml(HERE / "adapter-rules.yaml")["rules"]["custom"]
    assert rule["seriesQuery"].startswith(f"{name}{{")
    assert rule["name"]["matches"] == name


def test_a_rollout_never_has_fewer_than_before() -> None:
    for part in PARTS:
        assert find("Deployment", part)["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_the_service_and_the_route_lead_to_the_front() -> None:
    service = find("Service", "front")["spec"]
    assert service["selector"].items() <= labels("front").items()
    assert service["ports"][0]["targetPort"] == "mcp"
    (rule,) = find("HTTPRoute")["spec"]["rules"]
    assert rule["backendRefs"] == [{"name": "front", "port": service["ports"][0]["port"]}]
    assert rule["matches"][0]["path"]["value"] == HttpSettings().path
    assert seconds(rule["timeouts"]["request"]) > FrontSettings().wait_max_s


def test_network_policies_cover_every_pod_and_open_ports_by_their_names() -> None:
    for part in PARTS:
        assert find("NetworkPolicy", "parts")["spec"]["podSelector"]["matchLabels"].items() <= labels(part).items()
    names = {port["name"] for part in PARTS for port in container(part)["ports"]}
    for policy in (find("NetworkPolicy", "parts"), find("NetworkPolicy", "front-from-gateway")):
        for rule in policy["spec"]["ingress"]:
            assert {port["port"] for port in rule["ports"]} <= names


def test_configuration_and_example_secret_together_can_be_loaded() -> None:
    secret = load_yaml(HERE / "secret.example.yaml")
    config = find("ConfigMap")
    for part in PARTS:
        sources = [source for entry in container(part)["envFrom"] for source in entry.values()]
        assert [source["name"] for source in sources] == [config["metadata"]["name"], secret["metadata"]["name"]]
    values = {**config["data"], **secret["stringData"], "FMSG_SEAL_KEY": SealKeys.generate()}
    settings = load(values)
    assert settings.allowed_hosts == tuple(find("HTTPRoute")["spec"]["hostnames"])
    assert "secret.example.yaml" not in KUSTOMIZATION["resources"]


def test_prometheus_gives_pods_the_job_names_that_rules_go_by() -> None:
    (scrape,) = load_yaml(HERE / "scrape.yaml")["scrape_configs"]
    replacements = {rule.get("replacement") for rule in scrape["relabel_configs"] if rule.get("target_label") == "job"}
    assert replacements == {"fmsg-$1"}
    jobs = {job["job_name"] for job in load_yaml(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"]}
    assert {f"fmsg-{labels(part)['app.kubernetes.io/name']}" for part in PARTS} <= jobs


def test_kubectl_builds_the_kustomization() -> None:
    built = run(tool("kubectl"), "kustomize", HERE)
    assert "image: registry.example.com/fmsg-mcpd:" in built


@pytest.mark.parametrize("name", [*sorted({*KUSTOMIZATION["resources"]} - {"route.yaml"}), "secret.example.yaml"])
def test_the_schemas_of_kubernetes_accept_the_manifest(name: str) -> None:
    """All but the route: the Gateway API is no part of Kubernetes itself."""
    assert "passed" in run(tool("kubernetes-validate"), "--strict", HERE / name)


def test_the_schemas_of_kubernetes_refuse_what_it_does_not_know(tmp_path: Path) -> None:
    text = (HERE / "daemon.yaml").read_text()
    (tmp_path / "daemon.yaml").write_text(text.replace("terminationGracePeriodSeconds:", "gracePeriodSeconds:"))
    with pytest.raises(AssertionError, match="gracePeriodSeconds"):
        run(tool("kubernetes-validate"), "--strict", tmp_path / "daemon.yaml")
