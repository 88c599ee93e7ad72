"""A real Prometheus with the configuration and the rules that operators are given, for targets on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec
import yaml

from ledger.embedded import free_port

DEPLOY = Path(__file__).resolve().parents[2] / "ops" / "deploy" / "prometheus"
START_S = 30.0
"""A Prometheus that is not ready within this time does not work."""
INSTALL = "prometheus: it is not on PATH. Install it, for example `apt-get install prometheus`, and run this again."

Targets = Mapping[str, Mapping[str, str]]
"""Per job, what is scraped: the name it is shown under, and its ``host:port``."""


class NoPrometheus(RuntimeError):
    """There is no Prometheus on this machine, or it does not start."""


class BadQuery(RuntimeError):
    """Prometheus does not understand a query. The text is its own."""


class Series(msgspec.Struct, frozen=True):
    """One line of an answer: its labels, and its samples as (POSIX seconds, value)."""

    labels: dict[str, str]
    samples: tuple[tuple[float, float], ...]


def find_prometheus() -> str | None:
    """The program, or None."""
    return shutil.which("prometheus", path=f"{os.environ.get('PATH', '')}:/usr/local/bin:/opt/prometheus")


def duration(seconds: float) -> str:
    """As Prometheus writes it, which knows no fractions."""
    return f"{round(seconds * 1000)}ms"


def adapted(targets: Targets, *, every_s: float) -> dict[str, Any]:
    """The deploy files' configuration with these targets, looking at them and at the rules every so many seconds.

    Jobs without a target are left out. Raises `KeyError` for a job that the configuration does not have.
    """
    config: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    config["global"] = dict.fromkeys(("scrape_interval", "evaluation_interval"), duration(every_s))
    config["rule_files"] = [str(DEPLOY / name) for name in config["rule_files"]]
    config["scrape_configs"] = [
        {
            **{key: value for key, value in jobs[name].items() if key != "dns_sd_configs"},
            "static_configs": [
                {"targets": [address], "labels": {"instance": shown}} for shown, address in named.items()
            ],
        }
        for name, named in targets.items()
    ]
    return config


class Prometheus:
    """One that runs."""

    def __init__(self, url: str, *, every_s: float) -> None:
        self.url = url
        self.every_s = every_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def ready(self) -> bool:
        """Whether it answers queries yet."""
        with contextlib.suppress(aiohttp.ClientConnectionError):
            async with self._open.get(f"{self.url}/-/ready") as answer:
                return answer.status == 200
        return False

    async def over(self, expression: str, *, start_s: float, end_s: float, step_s: float) -> list[Series]:
        """The values of an expression from time to time; what is not a number is left out. Raises `BadQuery`."""
        asked = {"query": expression, "start": str(start_s), "end": str(end_s), "step": str(step_s)}
        async with self._open.post(f"{self.url}/api/v1/query_range", data=asked) as answer:
            told = await answer.json()
        if told["status"] != "success":
            raise BadQuery(f"{told.get('error')}: {expression}")
        return [_series(one) for one in told["data"]["result"]]

    async def scraped(self) -> dict[str, str]:
        """What is scraped, and what was wrong the last time (nothing where all is well)."""
        async with self._open.get(f"{self.url}/api/v1/targets") as answer:
            told = await answer.json()
        return {one["labels"]["instance"]: one["lastError"] for one in told["data"]["activeTargets"]}

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("Prometheus is not open")
        return self._session


def _series(told: dict[str, Any]) -> Series:
    values = ((float(at_s), float(value)) for at_s, value in told["values"])
    return Series(labels=told["metric"], samples=tuple(pair for pair in values if math.isfinite(pair[1])))


@contextlib.asynccontextmanager
async def watching(targets: Targets, directory: Path, *, every_s: float) -> AsyncIterator[Prometheus]:
    """Run a Prometheus that scrapes these. Raises `NoPrometheus`."""
    program = find_prometheus()
    if program is None:
        raise NoPrometheus(INSTALL)
    config, log = _prepare(directory, adapted(targets, every_s=every_s))
    address = f"127.0.0.1:{free_port()}"
    command: Sequence[str] = (
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    )
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
        )
    try:
        async with Prometheus(f"http://{address}", every_s=every_s) as running:
            await _answering(running, process, log)
            yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def _prepare(directory: Path, config: dict[str, Any]) -> tuple[Path, Path]:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path, directory / "prometheus.log"


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


async def _answering(running: Prometheus, process: asyncio.subprocess.Process, log: Path) -> None:
    deadline = asyncio.get_running_loop().time() + START_S
    while asyncio.get_running_loop().time() < deadline and process.returncode is None:
        if await running.ready():
            return
        await asyncio.sleep(0.1)
    raise NoPrometheus(f"prometheus: it does not answer. It said: {_tail(log)}")
