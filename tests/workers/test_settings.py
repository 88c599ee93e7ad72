from __future__ import annotations

from workers.settings import WorkerSettings


def test_a_stop_ends_before_service_managers_lose_patience() -> None:
    assert WorkerSettings().drain_s < 30


def test_without_a_queue_jobs_run_in_this_process() -> None:
    assert WorkerSettings().queue_url is None
