"""`ops.role`: what a service manager allows is not what a daemon gets by with."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ops.role import limits_now, raise_limit

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such limit")

SCRIPT = """
import resource
from ops.role import limits_now, raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
raise_limit({wanted})
print(*limits_now())
"""


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "then"),
    [(128, 512, 300, "300 512"), (128, 512, 1000, "512 512"), (512, 512, 300, "512 512")],
)
def test_as_many_as_are_wanted_or_may_be(soft: int, hard: int, wanted: int, then: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(soft=soft, hard=hard, wanted=wanted)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == (then, "")


def test_a_system_without_such_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    assert limits_now() is None
    raise_limit()
