from __future__ import annotations

import asyncio

import msgspec
import pytest

from ops.doctor.findings import (
    FIT,
    OUTAGE,
    WRONG,
    Check,
    Finding,
    Level,
    Scrubber,
    Trouble,
    exit_status,
    is_fit,
    line,
    summary,
    to_json,
)

CHECK = Check(name="redis", tried="PING it", within_s=20.0, late="Look at it.")


def finding(level: Level = "ok", **changes: str) -> Finding:
    return Finding(**{"check": "dns", "level": level, "tried": "look it up", "came": "192.0.2.1", **changes})  # type: ignore[arg-type]  # the fields are right


async def test_what_goes_well_is_shown_and_returned() -> None:
    async def work() -> int:
        return 7

    found, result = await CHECK.run(work, lambda number: f"{number} answers")
    assert (found.level, found.came, found.do, result) == ("ok", "7 answers", "", 7)
    assert (found.check, found.tried) == ("redis", "PING it")


@pytest.mark.parametrize("level", ["failure", "warning", "skipped"])
async def test_trouble_says_what_came_and_what_to_do(level: Level) -> None:
    async def work() -> int:
        raise Trouble("it burns", "Put it out.", level=level)

    found, result = await CHECK.run(work, str)
    assert (found.level, found.came, found.do, result) == (level, "it burns", "Put it out.", None)


async def test_what_takes_too_long_is_a_failure() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    found, _ = await msgspec.structs.replace(CHECK, within_s=0.01).run(work, str)
    assert (found.level, found.came, found.do) == ("failure", "no answer within 0.01 s", "Look at it.")
    assert found.outage


async def test_a_fault_of_ours_does_not_end_the_examination() -> None:
    async def work() -> None:
        raise ZeroDivisionError("by zero")

    found, _ = await CHECK.run(work, str)
    assert (found.level, found.came) == ("failure", "an unexpected ZeroDivisionError: by zero")


def test_what_cannot_be_checked_is_said() -> None:
    assert (CHECK.skipped("no key").level, CHECK.skipped("no key").came) == ("skipped", "no key")


def test_no_secret_is_shown() -> None:
    clean = Scrubber(["hunter2", "hunter2-and-more", None, "", "abc"])
    shown = clean.finding(
        finding(tried="try hunter2-and-more", came="abc fmsgk_c2VjcmV0c2VjcmV0 hunter2", do="\x1b[31mred\nhunter2")
    )
    assert (shown.tried, shown.came, shown.do) == ("try …", "abc [redacted fmsg key] …", "[31mred …")


def test_a_line_for_people() -> None:
    assert line(finding()) == "ok       dns               look it up: 192.0.2.1"
    told = line(finding("failure", came="nothing", do="Look."))
    assert told.splitlines() == ["FAILED   dns               look it up: nothing", " " * 27 + "-> Look."]
    assert line(finding("warning"), colours=True).startswith("\x1b[33mWARNING ")


def test_a_long_line_breaks_between_words() -> None:
    told = line(
        finding("failure", came="the connection was refused", do="Start the host, or correct host and port."),
        columns=60,
    )
    assert told.splitlines() == [
        "FAILED   dns               look it up: the connection was",
        " " * 27 + "refused",
        " " * 27 + "-> Start the host, or correct",
        " " * 30 + "host and port.",
    ]


@pytest.mark.parametrize(
    ("failures", "status"), [([], FIT), ([True, True], OUTAGE), ([True, False], WRONG), ([False], WRONG)]
)
def test_the_exit_status_tells_an_outage_from_what_is_wrong(failures: list[bool], status: int) -> None:
    found = [finding("warning"), finding()]
    found += [Finding(check="x", level="failure", tried="", came="", outage=outage) for outage in failures]
    assert exit_status(found) == status


@pytest.mark.parametrize(
    ("levels", "fit", "told"),
    [
        (["ok", "ok"], True, "0 failed, 0 warnings, 2 fine"),
        (["ok", "warning", "skipped"], True, "0 failed, 1 warning, 1 fine, 1 skipped"),
        (["failure", "warning", "warning"], False, "1 failed, 2 warnings, 0 fine"),
    ],
)
def test_the_sum_of_it(levels: list[Level], fit: bool, told: str) -> None:
    findings = [finding(level) for level in levels]
    assert is_fit(findings) is fit
    assert summary(findings) == told


def test_json_has_it_all() -> None:
    decoded = msgspec.json.decode(to_json([finding("warning", do="Look.")], role="stdio"))
    assert decoded == {
        "role": "stdio",
        "ok": True,
        "findings": [
            {
                "check": "dns",
                "level": "warning",
                "tried": "look it up",
                "came": "192.0.2.1",
                "do": "Look.",
                "outage": False,
            }
        ],
    }
