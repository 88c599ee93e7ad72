"""What the tests of the deploy files share: where they are, how they are read, and the tools that check them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram

from ops.settings import variables
from telemetry import metrics

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "ops" / "deploy"

CARRIED = 10_000
"""Callers of a daemon that the deploy files are made for."""

SETTING_NAMES = frozenset(variable.name for _, variable, _, _ in variables())

TARGET_LABELS = frozenset({"job", "instance"})
"""What Prometheus gives every series itself."""

PROCESS_METRICS = frozenset({"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"})
"""Of prometheus-client's own, on Linux, from processes that do not share a metrics directory."""


def load_yaml(path: Path) -> Any:
    """The one document of a file."""
    return yaml.safe_load(path.read_text())


def load_all_yaml(path: Path) -> list[Any]:
    """All documents of a file."""
    return list(yaml.safe_load_all(path.read_text()))


def tool(name: str) -> str:
    """The path of a program, of this environment or of the machine; the test is skipped where it is not installed."""
    path = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def run(*command: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a program; what it said. Fails the test where it ends with another status than 0."""
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **(env or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def seconds(text: str) -> float:
    """A duration as compose, Prometheus and proxies write it: ``45s``, ``5m``, ``1h``; a bare number is seconds."""
    match = re.fullmatch(r"(\d+)(ms|s|m|h)?", text)
    assert match is not None, text
    return int(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600, None: 1}[match[2]]


class Exported(msgspec.Struct, frozen=True):
    """A series that processes export."""

    labels: frozenset[str]


def exported() -> dict[str, Exported]:
    """Every series of `telemetry.metrics` by its name in the exposition, with its labels as Prometheus stores them."""
    series: dict[str, Exported] = {}
    for metric in vars(metrics).values():
        if isinstance(metric, Counter | Gauge | Histogram):
            labels = frozenset(metric._labelnames)
            for suffix, more in _suffixes(metric):
                series[f"{metric._name}{suffix}"] = Exported(labels | more)
    return series


def _suffixes(metric: Counter | Gauge | Histogram) -> Iterator[tuple[str, frozenset[str]]]:
    none = frozenset[str]()
    if isinstance(metric, Counter):
        yield "_total", none
    elif isinstance(metric, Histogram):
        yield "_bucket", frozenset({"le"})
        yield "_sum", none
        yield "_count", none
    else:
        yield "", none


def check_expression(expression: str) -> set[str]:
    """The series that a PromQL expression names; fails the test for one, or a label of one, that nobody exports."""
    known = exported()
    named = set()
    grouping = set(TARGET_LABELS)
    for name, matchers in re.findall(r"\b((?:fmsg_mcpd|process)_\w+)(?:\{([^}]*)\})?", expression):
        if name in PROCESS_METRICS:
            continue
        assert name in known, f"{name} is exported by nobody: {expression}"
        used = set(re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', matchers))
        assert used <= known[name].labels | TARGET_LABELS, f"{name} has no label {used}: {expression}"
        named.add(name)
        grouping |= known[name].labels
    for group in re.findall(r"\bby \(([^)]*)\)", expression):
        labels = {label.strip() for label in group.split(",")}
        assert labels <= grouping, f"{labels - grouping} is no label of these series: {expression}"
    return named
