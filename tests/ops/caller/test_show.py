from __future__ import annotations

import msgspec
import pytest

from ledger.port import FeedReport
from ops.caller.orders import OrderOutcome
from ops.caller.show import moment, plain, plain_outcome, to_json
from ops.caller.view import AskedFor, CallerView, KeptSubscription, LedgerEnds, Owner, ShownEntry
from tests.ops.caller.test_view import view_of


def entry(n: int) -> ShownEntry:
    return ShownEntry(
        at=f"179-{n}", id=str(n + 100), arrived_at_s=1_790_000_000.0, sent_at_s=1_789_999_999.0, source="push"
    )


LEDGER = LedgerEnds(
    epoch="e1",
    held=9,
    last="179-9",
    low="0-0",
    baseline_id="90",
    baseline_time_s=0.0,
    head=(entry(1), entry(2)),
    tail=(entry(8), entry(9)),
)
SUBSCRIPTION = KeptSubscription(name="main", after_id="7", outstanding=2, created_s=100.0, used_s=940.0)
DAMAGED = KeptSubscription(name="old", after_id="0", outstanding=0, created_s=0.0, used_s=0.0, readable=False)


def test_everything_is_shown() -> None:
    text = plain(
        view_of(
            ledger=LEDGER,
            subscriptions=(SUBSCRIPTION, DAMAGED),
            kept={"subscriptions": 1, "idempotency_records": 3, "old_positions": 1},
        )
    )
    assert text.splitlines() == [
        "@ann@here.test  (caller aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa)",
        "  its feed is live",
        "",
        "ACTIVATION     asked for 10 s ago, token good for 67 min",
        "OWNER          d1 (alive), lease epoch 1",
        "FEED           live for 100 s on d1",
        "LAST ERROR     none",
        "LEDGER         9 entries, the last at 179-9",
        "               old news: ids up to 90, times up to never; epoch e1",
        "  at     id   arrived               sent                  source",
        "  179-1  101  2026-09-21 14:13:20Z  2026-09-21 14:13:19Z  push",
        "  179-2  102  2026-09-21 14:13:20Z  2026-09-21 14:13:19Z  push",
        "  …",
        "  179-8  108  2026-09-21 14:13:20Z  2026-09-21 14:13:19Z  push",
        "  179-9  109  2026-09-21 14:13:20Z  2026-09-21 14:13:19Z  push",
        "SUBSCRIPTIONS",
        "  name  after_id        unacknowledged  used      made",
        "  main  7               2               60 s ago  15 min ago",
        "  old   cannot be read",
        "KEPT           1 subscription, 3 idempotency records",
    ]


@pytest.mark.parametrize(
    ("view", "line"),
    [
        (view_of(asked=None), "ACTIVATION     none"),
        (view_of(asked=AskedFor(asked_at_s=990.0, token_until_s=None)), "asked for 10 s ago, without a valid token"),
        (view_of(sealed=True, asked=None), "ACTIVATION     sealed with a key that FMSG_SEAL_KEY here does not hold"),
        (view_of(owner=None), "OWNER          none"),
        (view_of(owner=Owner(daemon="d1", epoch=4, alive=False, draining=False)), "d1 (dead), lease epoch 4"),
        (view_of(owner=Owner(daemon="d1", epoch=4, alive=True, draining=True)), "d1 (draining), lease epoch 4"),
        (view_of(feed=None), "FEED           no report"),
        (
            view_of(feed=FeedReport(state="asking", daemon="d1", since_s=1.0, error="no", needs_credential=True)),
            "asking for 17 min on d1, needs a new token",
        ),
        (
            view_of(feed=FeedReport(state="asking", daemon="d1", since_s=1.0, error="no", needs_credential=True)),
            "LAST ERROR     no",
        ),
        (view_of(), "LEDGER         none"),
        (
            view_of(ledger=msgspec.structs.replace(LEDGER, held=0, head=(), tail=())),
            "LEDGER         0 entries",
        ),
        (view_of(), "SUBSCRIPTIONS  none"),
    ],
)
def test_what_may_be_missing(view: CallerView, line: str) -> None:
    assert line in plain(view)


def test_neighbours_are_not_kept_apart() -> None:
    assert "…" not in plain(view_of(ledger=msgspec.structs.replace(LEDGER, held=3, tail=(entry(3),))))


def test_an_outcome() -> None:
    assert plain_outcome(OrderOutcome(done=True, came="done")) == "done"
    assert plain_outcome(OrderOutcome(done=False, came="not done", do="Look.")) == "not done\n-> Look."


def test_json_has_it_all() -> None:
    told = msgspec.json.decode(to_json(view_of(ledger=LEDGER), OrderOutcome(done=True, came="done")))
    assert told["outcome"] == {"done": True, "came": "done", "do": ""}
    assert told["remarks"][0]["what"] == "its feed is live"
    assert told["ledger"]["head"][0]["id"] == "101"
    assert msgspec.json.decode(to_json(view_of(), None))["outcome"] is None


def test_times() -> None:
    assert moment(1_790_000_000.5) == "2026-09-21 14:13:20Z"
    assert moment(0.0) == "never"
