"""What a process costs, as the kernel counts it; and what a list of times says."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Resident memory in bytes and CPU time (user and system) in seconds of a process, or of several added up."""

    rss_bytes: int
    cpu_s: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(rss_bytes=self.rss_bytes + other.rss_bytes, cpu_s=self.cpu_s + other.cpu_s)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(rss_bytes=self.rss_bytes - other.rss_bytes, cpu_s=self.cpu_s - other.cpu_s)


NOTHING = Cost(rss_bytes=0, cpu_s=0.0)
"""What no process costs."""

Costs = Mapping[str, Cost]
"""By the name of the process."""


def cost_of(pid: int) -> Cost:
    """What a process has cost so far (Linux: /proc). Raises `FileNotFoundError` where it has ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    rss_kib = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    return Cost(rss_bytes=rss_kib * 1024, cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_PER_S)


def costs_of(pids: Mapping[str, int]) -> dict[str, Cost]:
    """What several processes have cost so far."""
    return {name: cost_of(pid) for name, pid in pids.items()}


def between(earlier: Costs, later: Costs) -> dict[str, Cost]:
    """What was added from one reading to the next, by process."""
    return {name: cost - earlier.get(name, NOTHING) for name, cost in later.items()}


def total(costs: Iterable[Cost]) -> Cost:
    """Several costs together."""
    return sum(costs, start=NOTHING)


def own_bytes(pid: int) -> int:
    """Memory that no other process has a part in: resident, less the pages of libraries and programs."""
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        return 1024 * sum(
            int(line.split()[1]) for line in rollup if line.startswith(("Private_Clean:", "Private_Dirty:"))
        )


def open_files(pid: int, peers: Mapping[int, str]) -> Counter[str]:
    """Descriptors a process holds, by what they are: ``to NAME`` for a connection to a port that ``peers`` names."""
    ports = _remote_ports(pid)
    found: Counter[str] = Counter()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            link = os.readlink(entry)
        except FileNotFoundError:
            continue  # closed meanwhile
        kind, _, inode = link.partition(":")
        peer = peers.get(ports.get(inode.strip("[]"), 0))
        found["file" if link.startswith("/") else kind if peer is None else f"to {peer}"] += 1
    return found


def _remote_ports(pid: int) -> dict[str, int]:
    """The ports that TCP sockets are connected to, by inode (proc(5): /proc/net/tcp)."""
    tables = [table for name in ("tcp", "tcp6") if (table := Path(f"/proc/{pid}/net/{name}")).exists()]
    rows = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
    return {fields[9]: int(fields[2].rpartition(":")[2], 16) for fields in rows}


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles of a sample, in the sample's unit."""

    count: int
    p50: float
    p90: float
    p99: float
    worst: float


def spread(sample: Sequence[float]) -> Spread:
    """The percentiles of a sample that is not empty."""
    ordered = sorted(sample)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    return Spread(count=len(ordered), p50=at(0.5), p90=at(0.9), p99=at(0.99), worst=ordered[-1])
