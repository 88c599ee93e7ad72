"""`ops.bench.measure`: costs as the kernel counts them, and percentiles."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from ops.bench.measure import NOTHING, Cost, between, cost_of, costs_of, open_files, own_bytes, spread, total

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
def test_a_process_costs_memory_and_time() -> None:
    cost = cost_of(os.getpid())
    assert cost.rss_bytes > 1_000_000
    assert cost.cpu_s > 0


@linux
def test_what_libraries_take_is_shared() -> None:
    assert 1_000_000 < own_bytes(os.getpid()) < cost_of(os.getpid()).rss_bytes


@linux
def test_a_process_that_has_ended_cannot_be_read() -> None:
    with pytest.raises(FileNotFoundError):
        cost_of(2**22 + 1)


@linux
def test_open_files_are_counted_by_what_they_are() -> None:
    before = open_files(os.getpid(), {})
    with open(os.devnull), socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            assert open_files(os.getpid(), {port: "Redis"}) - before == {"file": 1, "socket": 1, "to Redis": 1}


@linux
def test_costs_are_read_by_name() -> None:
    assert set(costs_of({"me": os.getpid()})) == {"me"}


def test_what_was_added_between_two_readings() -> None:
    earlier = {"front": Cost(rss_bytes=10, cpu_s=1.0)}
    later = {"front": Cost(rss_bytes=30, cpu_s=1.5), "daemon": Cost(rss_bytes=5, cpu_s=0.5)}
    found = between(earlier, later)
    assert found["front"] == Cost(rss_bytes=20, cpu_s=0.5)
    assert found["daemon"] == Cost(rss_bytes=5, cpu_s=0.5)
    assert total(found.values()) == Cost(rss_bytes=25, cpu_s=1.0)
    assert total([]) == NOTHING


def test_the_percentiles_of_a_sample() -> None:
    found = spread([float(number) for number in reversed(range(100))])
    assert (found.count, found.p50, found.p90, found.p99, found.worst) == (100, 50.0, 90.0, 99.0, 99.0)


def test_the_percentiles_of_one_value() -> None:
    found = spread([7.0])
    assert (found.p50, found.p99, found.worst) == (7.0, 7.0, 7.0)
