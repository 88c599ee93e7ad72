"""What the doctor found, one line each, and how a check is kept within its time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal, TypeVar

import msgspec

from fmsg.redact import scrub
from ops.terminal import WIDTH, coloured, wrapped

Level = Literal["ok", "warning", "failure", "skipped"]

FIT, WRONG, OUTAGE = 0, 1, 75
"""Exit statuses: nothing failed; a setting, a key or a right is wrong; something is away, so try again (EX_TEMPFAIL of
sysexits)."""

INDENT = 27
"""Columns of the level and the name of a check."""

T = TypeVar("T")

HIDDEN = "…"
"""What is shown in place of a secret."""

SHORTEST_SECRET = 4
"""Hiding a shorter password would blot out half of every line."""

_SHOWN: dict[Level, tuple[str, str]] = {
    "ok": ("ok", "32"),
    "warning": ("WARNING", "33"),
    "failure": ("FAILED", "31"),
    "skipped": ("skipped", "2"),
}
"""Each level as it is shown, and its colour on a terminal."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One line: what was tried, what came of it, and what to do about it (empty where nothing is to be done).

    ``outage``: a failure that may be over at the next try, and no wrong setting.
    """

    check: str
    level: Level
    tried: str
    came: str
    do: str = ""
    outage: bool = False


class Trouble(Exception):
    """A check came out badly. ``do`` is the next step, ``outage`` as in `Finding`."""

    def __init__(self, came: str, do: str, *, level: Level = "failure", outage: bool = False) -> None:
        super().__init__(came)
        self.came = came
        self.do = do
        self.level: Level = level
        self.outage = outage


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A check about to be tried: its name, what is tried, how long it may take, and what to do if it takes longer."""

    name: str
    tried: str
    within_s: float
    late: str

    async def run(self, work: Callable[[], Awaitable[T]], shown: Callable[[T], str]) -> tuple[Finding, T | None]:
        """Do the work within its time; the line about it, and its result where it went well.

        ``work`` raises `Trouble` for what it understands; what it does not understand becomes a failure, too.
        """
        try:
            async with asyncio.timeout(self.within_s):
                result = await work()
        except Trouble as trouble:
            return self._finding(trouble.level, trouble.came, trouble.do, outage=trouble.outage), None
        except TimeoutError:
            return self._finding("failure", f"no answer within {self.within_s:g} s", self.late, outage=True), None
        except Exception as error:  # noqa: BLE001 - one fault must not keep the other checks from being made
            came = f"an unexpected {type(error).__name__}: {error}"
            return self._finding("failure", came, "Report this as a fault of fmsg-mcpd."), None
        return self._finding("ok", shown(result), ""), result

    def skipped(self, why: str) -> Finding:
        """The line about a check that cannot be made."""
        return self._finding("skipped", why, "")

    def _finding(self, level: Level, came: str, do: str, *, outage: bool = False) -> Finding:
        return Finding(check=self.name, level=level, tried=self.tried, came=came, do=do, outage=outage)


class Scrubber:
    """Takes every secret that the doctor was given out of what it shows."""

    def __init__(self, secrets: Iterable[str | None]) -> None:
        found = {secret for secret in secrets if secret and len(secret) >= SHORTEST_SECRET}
        self._secrets = sorted(found, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text without secrets and control characters, on one line."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return _CONTROL.sub(" ", scrub(text)).strip()

    def finding(self, finding: Finding) -> Finding:
        """A finding without secrets."""
        return msgspec.structs.replace(
            finding, tried=self.text(finding.tried), came=self.text(finding.came), do=self.text(finding.do)
        )


def is_fit(findings: Iterable[Finding]) -> bool:
    """Whether nothing failed."""
    return exit_status(findings) == FIT


def exit_status(findings: Iterable[Finding]) -> int:
    """`FIT`, `OUTAGE` where every failure is one, else `WRONG`."""
    failures = [finding for finding in findings if finding.level == "failure"]
    if not failures:
        return FIT
    return OUTAGE if all(finding.outage for finding in failures) else WRONG


def line(finding: Finding, *, colours: bool = False, columns: int = WIDTH) -> str:
    """A finding for people: what was tried and what came, and below it what to do. It breaks between words."""
    word, colour = _SHOWN[finding.level]
    text = wrapped(f"{word:<8} {finding.check:<17} {finding.tried}: {finding.came}", indent=INDENT, columns=columns)
    text = coloured(text[:8], colour, wanted=colours) + text[8:]
    if not finding.do:
        return text
    do = wrapped(f"{'':<{INDENT}}-> {finding.do}", indent=INDENT + 3, columns=columns)
    return f"{text}\n{do}"


def summary(findings: Iterable[Finding]) -> str:
    """How many findings of each kind there are."""
    counts: dict[Level, int] = {"failure": 0, "warning": 0, "ok": 0, "skipped": 0}
    for finding in findings:
        counts[finding.level] += 1
    warnings = "1 warning" if counts["warning"] == 1 else f"{counts['warning']} warnings"
    parts = [f"{counts['failure']} failed", warnings, f"{counts['ok']} fine"]
    return ", ".join(parts) + (f", {counts['skipped']} skipped" if counts["skipped"] else "")


def to_json(findings: Iterable[Finding], *, role: str) -> bytes:
    """Everything for programs."""
    listed = list(findings)
    return msgspec.json.format(msgspec.json.encode({"role": role, "ok": is_fit(listed), "findings": listed}), indent=2)
