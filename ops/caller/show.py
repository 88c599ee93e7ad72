"""One caller for people, as plain text, and for programs."""

from __future__ import annotations

import datetime

import msgspec

from ops.caller.orders import OrderOutcome
from ops.caller.view import CallerView, ShownEntry, remarks, words_of
from ops.terminal import span, table


def plain(view: CallerView) -> str:
    """Everything as text, what it means first."""
    lines = [f"{view.address}  (caller {view.caller})"]
    for remark in remarks(view):
        lines.append(f"  {remark.what}")
        if remark.do:
            lines.append(f"  -> {remark.do}")
    lines += [
        "",
        f"ACTIVATION     {_activation(view)}",
        f"OWNER          {_owner(view)}",
        f"FEED           {_feed(view)}",
        f"LAST ERROR     {view.feed.error if view.feed is not None and view.feed.error else 'none'}",
        *_ledger(view),
        *_subscriptions(view),
        f"KEPT           {words_of(view.kept)}",
    ]
    return "\n".join(lines)


def _activation(view: CallerView) -> str:
    if view.sealed:
        return "sealed with a key that FMSG_SEAL_KEY here does not hold, so its age and its token cannot be shown"
    asked = view.asked
    if asked is None:
        return "none"
    when = f"asked for {span(view.at_s - asked.asked_at_s)} ago"
    if asked.token_until_s is None:
        return f"{when}, without a valid token"
    return f"{when}, token good for {span(asked.token_until_s - view.at_s)}"


def _owner(view: CallerView) -> str:
    owner = view.owner
    if owner is None:
        return "none"
    state = "draining" if owner.draining else "alive" if owner.alive else "dead"
    return f"{owner.daemon} ({state}), lease epoch {owner.epoch}"


def _feed(view: CallerView) -> str:
    feed = view.feed
    if feed is None:
        return "no report"
    need = ", needs a new token" if feed.needs_credential else ""
    return f"{feed.state} for {span(view.at_s - feed.since_s)} on {feed.daemon}{need}"


def _ledger(view: CallerView) -> list[str]:
    ledger = view.ledger
    if ledger is None:
        return ["LEDGER         none"]
    lines = [
        f"LEDGER         {ledger.held} entries" + (f", the last at {ledger.last}" if ledger.held else ""),
        f"               old news: ids up to {ledger.baseline_id}, times up to {moment(ledger.baseline_time_s)}; "
        f"epoch {ledger.epoch}",
    ]
    if not ledger.held:
        return lines
    rows = [("at", "id", "arrived", "sent", "source"), *map(_row, ledger.head)]
    if ledger.held > len(ledger.head) + len(ledger.tail):
        rows.append(("…", "", "", "", ""))
    return [*lines, *table([*rows, *map(_row, ledger.tail)])]


def _row(entry: ShownEntry) -> tuple[str, str, str, str, str]:
    return entry.at, entry.id, moment(entry.arrived_at_s), moment(entry.sent_at_s), entry.source


def _subscriptions(view: CallerView) -> list[str]:
    if not view.subscriptions:
        return ["SUBSCRIPTIONS  none"]
    rows = [
        ("name", "after_id", "unacknowledged", "used", "made"),
        *(
            (one.name, "cannot be read", "", "", "")
            if not one.readable
            else (
                one.name,
                one.after_id,
                str(one.outstanding),
                f"{span(view.at_s - one.used_s)} ago",
                f"{span(view.at_s - one.created_s)} ago",
            )
            for one in view.subscriptions
        ),
    ]
    return ["SUBSCRIPTIONS", *table(rows)]


def moment(at_s: float) -> str:
    """A time for people, in UTC."""
    if at_s <= 0:
        return "never"
    return f"{datetime.datetime.fromtimestamp(at_s, datetime.UTC):%Y-%m-%d %H:%M:%S}Z"


def plain_outcome(outcome: OrderOutcome) -> str:
    """What became of an order."""
    return outcome.came + (f"\n-> {outcome.do}" if outcome.do else "")


def to_json(view: CallerView, outcome: OrderOutcome | None) -> bytes:
    """Everything for programs; ``outcome`` is what became of the order, if there was one."""
    told = {"remarks": remarks(view), "outcome": outcome, **msgspec.structs.asdict(view)}
    return msgspec.json.format(msgspec.json.encode(told), indent=2)
