from __future__ import annotations

import pathlib
import re
import time
from typing import Any

import pytest

import mcp_front
from ledger.port import FeedReport, Member, NoLedger
from ledger.seal import SealKeys
from ledger.store import RedisStore
from ledger.values import Baseline, CallerKey, Seen
from mcp_front.waiting.positions import Position as Bookmarked
from mcp_front.waiting.subscriptions import begin, encode
from ops.caller.view import KINDS, SHOWN, AskedFor, CallerView, Owner, look_at, remarks

ANN = "@ann@here.test"
KEY = CallerKey("a" * 32)
URL = "https://here.test"


async def look(store: RedisStore) -> CallerView:
    return await look_at(store, address=ANN, caller=KEY)


async def activate(store: RedisStore, *, token: str | None = "t1") -> None:
    await store.activations.activate(KEY, address=ANN, api_url=URL, token=token, token_expires_at_s=time.time() + 600.0)


def seen(message_id: int) -> Seen:
    return Seen(id=message_id, pid=None, root=message_id, from_="@bob@far.test", sent_at_s=1000.0 + message_id)


async def test_nobody_is_known_at_first(redis_store: RedisStore) -> None:
    view = await look(redis_store)
    assert (view.asked, view.owner, view.feed, view.ledger, view.subscriptions) == (None, None, None, None, ())
    assert view.kept == dict.fromkeys(KINDS, 0)
    assert abs(view.at_s - time.time()) < 30
    assert remarks(view)[0].what == "it is not known here"


async def test_everything_that_is_there_is_shown(redis_store: RedisStore) -> None:
    await activate(redis_store)
    await redis_store.fleet.beat(Member(id="d1", name="box", since_s=1.0, draining=True))
    await redis_store.fleet.take([KEY], "d1", over={})
    report = FeedReport(state="live", daemon="d1", since_s=5.0)
    await redis_store.activations.report(KEY, report)
    await redis_store.ledger.begin(KEY, [seen(1)], Baseline(newest_id=1, time_s=1001.0))
    await redis_store.ledger.append(KEY, [seen(id_) for id_ in range(2, 21)], "push")
    state = begin(Bookmarked(7), thread_root=None, from_=None, now_s=1000.0)
    await redis_store.documents.store(KEY, KINDS["subscriptions"], "main", encode(state), expected=0, ttl_s=60.0)
    view = await look(redis_store)
    assert view.asked is not None
    assert view.asked.token_until_s is not None
    assert view.asked.token_until_s > time.time()
    assert view.owner is not None
    assert (view.owner.daemon, view.owner.alive, view.owner.draining) == ("d1", True, True)
    assert view.feed == report
    assert view.ledger is not None
    assert (view.ledger.held, view.ledger.low) == (20, "0-0")
    assert view.ledger.last == view.ledger.tail[-1].at
    assert [entry.id for entry in view.ledger.head] == [str(id_) for id_ in range(1, SHOWN + 1)]
    assert [entry.id for entry in view.ledger.tail] == [str(id_) for id_ in range(21 - SHOWN, 21)]
    assert (view.ledger.head[0].source, view.ledger.tail[0].source) == ("snapshot", "push")
    assert [(one.name, one.after_id, one.outstanding) for one in view.subscriptions] == [("main", "7", 0)]
    assert view.kept["subscriptions"] == 1
    assert "@bob" not in repr(view)


async def test_a_short_ledger_is_shown_once(redis_store: RedisStore) -> None:
    await redis_store.ledger.begin(KEY, [seen(1), seen(2)], Baseline())
    view = await look(redis_store)
    assert view.ledger is not None
    assert [entry.id for entry in view.ledger.head] == ["1", "2"]
    assert view.ledger.tail == ()
    assert remarks(view)[0].what.startswith("no agent has asked for it")


async def test_a_ledger_that_goes_meanwhile_is_none(redis_store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(*_: Any) -> None:
        raise NoLedger("gone")

    await redis_store.ledger.begin(KEY, [], Baseline())
    monkeypatch.setattr(redis_store.ledger, "read", gone)
    assert (await look(redis_store)).ledger is None


async def test_an_activation_under_another_key_is_said(redis_store: RedisStore, redis_url: str) -> None:
    async with RedisStore(redis_url, seal=SealKeys.parse(SealKeys.generate())) as stranger:
        await activate(stranger)
    view = await look(redis_store)
    assert view.sealed
    assert "FMSG_SEAL_KEY" in remarks(view)[0].what


def test_every_kind_of_document_that_fronts_keep_is_known() -> None:
    sources = [path.read_text() for path in (pathlib.Path(mcp_front.__file__).parent).rglob("*.py")]
    kinds = {kind for source in sources for kind in re.findall(r'^KIND = "(\w+)"', source, re.MULTILINE)}
    assert {"subscription", "send"} <= kinds <= set(KINDS.values())


def view_of(**changes: Any) -> CallerView:
    fields: dict[str, Any] = {
        "address": ANN,
        "caller": KEY,
        "at_s": 1000.0,
        "sealed": False,
        "asked": AskedFor(asked_at_s=990.0, token_until_s=5000.0),
        "owner": Owner(daemon="d1", epoch=1, alive=True, draining=False),
        "feed": FeedReport(state="live", daemon="d1", since_s=900.0),
        "ledger": None,
        "subscriptions": (),
        "kept": dict.fromkeys(KINDS, 0),
    }
    return CallerView(**{**fields, **changes})


def feed(state: str, **changes: Any) -> FeedReport:
    return FeedReport(**{"state": state, "daemon": "d1", "since_s": 900.0, **changes})


@pytest.mark.parametrize(
    ("changes", "what", "do"),
    [
        ({}, "its feed is live", ""),
        ({"asked": None, "kept": {"idempotency_records": 1}}, "no agent has asked for it", "next request"),
        ({"owner": None}, "no daemon has it", "fmsg-mcpd status"),
        ({"owner": Owner(daemon="d1", epoch=1, alive=False, draining=False)}, "d1 is gone", "fmsg-mcpd status"),
        ({"feed": None}, "has not reported on it yet", "Look again"),
        ({"feed": feed("live", daemon="d0")}, "it moves from daemon d0 to d1", "Look again"),
        ({"feed": feed("backing_off", error="503: no")}, "backing_off, so fronts poll for it: 503: no", "--reconnect"),
        ({"feed": feed("stopped", error="403: no")}, "stopped", "The host refuses it"),
        ({"feed": feed("asking", needs_credential=True)}, "asking", "next request brings one"),
    ],
)
def test_what_it_means(changes: dict[str, Any], what: str, do: str) -> None:
    (remark,) = remarks(view_of(**changes))
    assert what in remark.what
    assert do in remark.do


def test_a_live_feed_without_a_token_has_two_remarks() -> None:
    found = remarks(view_of(asked=AskedFor(asked_at_s=1.0, token_until_s=None)))
    assert [remark.what for remark in found] == ["its feed is live", "there is no valid token for its feed"]
