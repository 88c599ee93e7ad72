"""`ops.demo`: what it prints when all holds, and that it says so when a step does not."""

from __future__ import annotations

import pytest

from ops import interop
from ops.demo import demo

pytestmark = pytest.mark.processes


def test_the_demo_walks_through_seven_steps(capsys: pytest.CaptureFixture[str]) -> None:
    """Each step with what was checked; exit status 0."""
    assert demo(keep=False, verbose=False) == 0
    text = capsys.readouterr().out
    for number in range(1, 8):
        assert f"\n  {number}. " in text
    assert "Push to wait-result" in text


def test_a_step_that_does_not_hold_is_told_and_fails_the_demo(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of the step, what was expected and what came; exit status 1, no traceback."""

    async def wrong(self: interop.Interop) -> str:
        interop.expect(False, "a reaction id", None)
        return ""

    monkeypatch.setattr(interop.Interop, "_react", wrong)
    assert demo(keep=False, verbose=True) == 1
    text = capsys.readouterr().out
    assert "6. FAILED: expected a reaction id, got None" in text
    assert "--- front-here" in text
