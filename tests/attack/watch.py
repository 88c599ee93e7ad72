"""What is measured during an attack: the longest answer of /healthz, and the peak memory of the process."""

from __future__ import annotations

import http.client
import os
import signal
import threading
import time
from pathlib import Path

BETWEEN_S = 0.02
"""Between two questions."""
TIMEOUT_S = 60.0
ENDED_MB = 4000.0
"""A process that grows beyond it is ended: the machine has other things to do."""


class Watch(threading.Thread):
    """Asks /healthz all the time, from a thread of its own: what else this process does must not show in the times."""

    def __init__(self, port: int, pid: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._pid = pid
        self._times_s: list[float] = []
        self.killed = False
        """Whether the process was ended for its size."""
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        """Ask until `end`."""
        line = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
        while not self._ended.wait(BETWEEN_S):
            begun = time.perf_counter()
            try:
                line.request("GET", "/healthz")
                line.getresponse().read()
            except (OSError, http.client.HTTPException):
                line.close()
            with self._lock:
                self._times_s.append(time.perf_counter() - begun)
            if not self.killed and self.memory_mb > ENDED_MB:
                self.killed = True
                os.kill(self._pid, signal.SIGKILL)
        line.close()

    def begin(self) -> None:
        """Measure anew from here."""
        with self._lock:
            self._times_s = []
        try:
            Path(f"/proc/{self._pid}/clear_refs").write_text("5")
        except OSError:
            return  # Then the peak is that of the whole run.

    @property
    def slowest_s(self) -> float:
        """The longest answer since `begin`."""
        with self._lock:
            return max(self._times_s, default=0.0)

    @property
    def slow_s(self) -> float:
        """The 99th percentile since `begin`."""
        with self._lock:
            times = sorted(self._times_s)
        return times[int(len(times) * 0.99)] if times else 0.0

    @property
    def peak_mb(self) -> float:
        """The most memory the process had since `begin`, in MB."""
        return ENDED_MB if self.killed else _status_kb(self._pid, "VmHWM") / 1000

    @property
    def memory_mb(self) -> float:
        """What it has now."""
        return _status_kb(self._pid, "VmRSS") / 1000

    def end(self) -> None:
        """Stop asking."""
        self._ended.set()
        self.join(TIMEOUT_S)


def _status_kb(pid: int, field: str) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{field}:")), 0)
