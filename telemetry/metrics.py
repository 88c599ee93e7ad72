"""Every metric the processes export, in one place. Prefix ``fmsg_mcpd_``; no label ever names a caller."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""From a wake-up within one process to an upstream deadline, in seconds."""
_SLOW = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
"""Delays that retries and reconciliation make, in seconds."""
_COUNTS = (1, 2, 5, 10, 20, 50, 100)

SOCKETS = Gauge("fmsg_mcpd_sockets", "Event sockets open to the host.", multiprocess_mode="livesum")
FEEDS = Gauge("fmsg_mcpd_feeds", "Feeds by state.", ["state"], multiprocess_mode="livesum")
SOCKET_CONNECTS = Counter("fmsg_mcpd_socket_connects", "Attempts to open an event socket.", ["outcome"])
SOCKET_DISCONNECTS = Counter("fmsg_mcpd_socket_disconnects", "Event sockets that closed.", ["reason"])
RECONNECT_DELAY = Histogram("fmsg_mcpd_reconnect_delay_seconds", "Back-off before a reconnect.", buckets=_SLOW)

LEASES = Gauge("fmsg_mcpd_leases", "Callers this daemon holds the lease of.", multiprocess_mode="livesum")
LEASES_LOST = Counter("fmsg_mcpd_leases_lost", "Leases that another daemon took.")
HANDOVERS = Counter("fmsg_mcpd_handovers", "Callers handed over or taken over.", ["direction"])

APPENDS = Counter("fmsg_mcpd_appends", "Arrivals written to ledgers.", ["source"])
DUPLICATES = Counter("fmsg_mcpd_duplicates", "Messages met again that the ledger held already.", ["source"])
INGEST_LAG = Histogram(
    "fmsg_mcpd_ingest_lag_seconds", "From the host's time of a message to its arrival.", buckets=_SLOW
)
GAPS = Counter("fmsg_mcpd_gaps", "Times a reader had to go to the host for what the ledger lacks.", ["cause"])
LOST_EVENTS = Counter(
    "fmsg_mcpd_lost_events", "Messages found only by reconcile while the socket looked healthy: the loss detector."
)
LOST_EVENT_DELAY = Histogram("fmsg_mcpd_lost_event_delay_seconds", "How late such a message was found.", buckets=_SLOW)
RECONCILES = Counter("fmsg_mcpd_reconciles", "Comparisons of the host's list with a ledger.", ["outcome"])

WAITS_HELD = Gauge(
    "fmsg_mcpd_waits_held",
    "Calls of wait_for_message and streams of subscriptions/listen held now.",
    multiprocess_mode="livesum",
)
WAITS_BUDGET = Gauge("fmsg_mcpd_waits_budget", "How many of them may be held at most.", multiprocess_mode="livesum")
WAITS = Counter("fmsg_mcpd_waits", "Calls of wait_for_message by outcome and transport.", ["outcome", "transport"])
WAKE_LATENCY = Histogram(
    "fmsg_mcpd_wake_latency_seconds", "From the end of the settle window (or the arrival) to the answer.", buckets=_FAST
)
BATCH_SIZE = Histogram("fmsg_mcpd_batch_size", "Messages returned by one wait.", buckets=_COUNTS)
POLL_FALLBACKS = Counter("fmsg_mcpd_poll_fallbacks", "Waits that polled because no live feed was there.", ["reason"])

TOOL_CALLS = Counter("fmsg_mcpd_tool_calls", "Tool calls by tool and outcome.", ["tool", "outcome"])
TOOL_DURATION = Histogram(
    "fmsg_mcpd_tool_duration_seconds", "Duration of tool calls (waits excepted).", ["tool"], buckets=_FAST
)
EXCHANGES = Counter("fmsg_mcpd_token_exchanges", "API key exchanges with the host.", ["outcome"])
REFUSALS = Counter("fmsg_mcpd_refusals", "Requests refused at the boundary.", ["reason"])
UPSTREAM_REQUESTS = Counter(
    "fmsg_mcpd_upstream_requests", "Requests to the host by route and status class.", ["route", "status"]
)
UPSTREAM_DURATION = Histogram(
    "fmsg_mcpd_upstream_duration_seconds", "Duration of requests to the host.", ["route"], buckets=_FAST
)

REDIS_COMMANDS = Counter("fmsg_mcpd_redis_commands", "Commands and scripts sent to Redis.", ["operation"])
REDIS_ERRORS = Counter("fmsg_mcpd_redis_errors", "Redis commands that failed.", ["kind"])
for _kind in ("BusyLoadingError", "ConnectionError", "OutOfMemoryError", "ReadOnlyError", "TimeoutError"):
    # There from the start: to Prometheus, a counter that appears with the first error has not risen.
    REDIS_ERRORS.labels(_kind)
UNREADABLE = Counter("fmsg_mcpd_unreadable", "Values in Redis that could not be read, by kind.", ["kind"])
REDIS_RECONNECTS = Counter("fmsg_mcpd_redis_reconnects", "Times the reader of notifications lost its connection.")

LEDGERS_RESTORED = Counter("fmsg_mcpd_ledgers_restored", "Ledgers that a daemon wrote back after the store lost them.")
HOST_UP = Gauge("fmsg_mcpd_host_up", "Whether the fmsg host answers a daemon: 1 or 0.", multiprocess_mode="livemin")
STORE_UP = Gauge("fmsg_mcpd_store_up", "Whether the store answers a daemon: 1 or 0.", multiprocess_mode="livemin")
HOST_UP.set(1)
STORE_UP.set(1)

JOBS = Counter("fmsg_mcpd_jobs", "Jobs by kind and outcome.", ["kind", "outcome"])
JOB_DURATION = Histogram("fmsg_mcpd_job_duration_seconds", "Duration of jobs.", ["kind"], buckets=_SLOW)
DEFERRED_TASKS = Gauge("fmsg_mcpd_deferred_tasks", "Deferred tasks left for workers.", multiprocess_mode="mostrecent")

LOOP_LAG = Histogram("fmsg_mcpd_event_loop_lag_seconds", "How late the event loop runs a timer.", buckets=_FAST)
BUILD_INFO = Gauge(
    "fmsg_mcpd_build_info",
    "Version and role of the process; always 1.",
    ["version", "role"],
    multiprocess_mode="livemax",
)
UP_SINCE = Gauge(
    "fmsg_mcpd_up_since_seconds", "POSIX time at which the process was ready.", multiprocess_mode="livemin"
)
