"""What a host keeps: indexes cost a page, ids and stamps only grow, and an SQLite file goes on where it ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.records import Account, ApiKey, Recipient, Record
from sandbox.store import MAX_ID, Journal, NoJournal, SqliteJournal, State, page
from sandbox.wire import Refused
from tests.sandbox.conftest import Clock, Town


def record(number: int) -> Record:
    return Record(id=number, from_="@a@x", to=[Recipient(addr="@b@x")], type="text/plain")


def test_pages_are_newest_first() -> None:
    ids = list(range(1, 11))
    assert page(ids, limit=3, offset=0) == [10, 9, 8]
    assert page(ids, limit=3, offset=8) == [2, 1]
    assert page(ids, limit=3, offset=10) == []
    assert page([], limit=3, offset=0) == []


def test_a_draft_sent_late_takes_its_place_by_id(clock: Clock) -> None:
    state = State(clock=clock)
    early, late = record(state.take_id()), record(state.take_id())
    for draft in (early, late):
        state.add_draft(draft)
    assert (state.mailbox("@B@x").shown, state.mailbox("@b@x").received) == ([1, 2], [])
    state.publish(late, state.stamp())
    state.publish(early, state.stamp())
    assert state.mailbox("@b@x").received == [1, 2]
    assert early.time_s is not None
    assert late.time_s is not None
    assert early.time_s > late.time_s
    assert state.by_hash[early.sha256 or ""] == 1


def test_a_dropped_draft_leaves_nothing(clock: Clock) -> None:
    state = State(clock=clock)
    draft = record(state.take_id())
    state.add_draft(draft)
    state.drop_draft(draft)
    assert (state.messages, state.mailbox("@b@x").shown, state.mailbox("@a@x").sent) == ({}, [], [])
    assert state.take_id() == 2


def test_a_refused_recipient_gets_nothing(clock: Clock) -> None:
    state = State(clock=clock)
    draft = record(state.take_id())
    state.add_draft(draft)
    draft.to[0].code = 102
    state.publish(draft, state.stamp())
    assert (state.mailbox("@b@x").shown, state.mailbox("@b@x").received) == ([], [])


def test_stamps_only_grow(clock: Clock) -> None:
    state = State(clock=clock)
    first = state.stamp()
    clock.now_s -= 100
    second = state.stamp()
    parent = record(1)
    parent.time_s = first + 50
    assert first < second < parent.time_s < state.stamp(after=parent)


def test_ids_end_at_the_largest(clock: Clock) -> None:
    state = State(clock=clock)
    state.set_next_id(MAX_ID)
    assert state.take_id() == MAX_ID
    with pytest.raises(Refused):
        state.take_id()


async def test_a_host_goes_on_with_its_messages_keys_and_tokens(town: Town, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    await town.host(store=path, federated=False)
    alice, bob = await town.person("@alice@a.test"), await town.person("@bob@a.test")
    dora = await town.person("@dora@a.test")
    root = await alice.send(bob.address, topic="T")
    reply = await bob.send(alice.address, pid=root)
    await bob.post(f"/{root}/read")
    batch = (await alice.post(f"/{root}/add-to", {"add_to": ["@dora@a.test"]})).json
    await alice.post(f"/{root}/react", {"emoji": "👍"})
    draft = await alice.draft(bob.address)
    await alice.attach(draft, "a.txt", b"xyz")
    deleted = await alice.draft(bob.address)
    await alice.ask("DELETE", f"/{deleted}")
    before = await bob.message(root)

    await town.host(store=path, federated=False)
    bob.url = alice.url = dora.url = town.urls["a.test"]
    assert await bob.message(root) == before
    assert await alice.ids() == [reply]
    assert (await alice.get(f"/{draft}/attach/a.txt")).body == b"xyz"
    assert (await alice.get(f"/{deleted}")).status == 404
    assert (await bob.sign_in()).status == 200
    assert (await dora.sign_in()).status == 200
    answer = await dora.send(alice.address, pid=batch["sha256"])
    assert answer > deleted
    assert (await alice.message(answer))["time"] > before["time"]


@pytest.mark.parametrize("kind", ["none", "sqlite"])
def test_journals_take_everything(kind: str, tmp_path: Path) -> None:
    journal: Journal = NoJournal() if kind == "none" else SqliteJournal(tmp_path / "x.sqlite")
    record = Record(id=2**63 - 1, from_="@a@x", to=[Recipient(addr="@b@x")], type="text/plain", data=b"\xff")
    key = ApiKey(key_id="k", addr="@a@x", secret_sha256=b"\0", cidrs=("10.0.0.0/8",))
    journal.save_message(record)
    journal.save_message(record)
    journal.save_account(Account(addr="@a@x", owner="o"))
    journal.save_key(key)
    journal.save_fact("next_id", "5")
    if isinstance(journal, SqliteJournal):
        assert list(journal.messages()) == [record]
        assert [account.owner for account in journal.accounts()] == ["o"]
        assert list(journal.api_keys()) == [key]
        assert journal.facts() == {"next_id": "5"}
    journal.drop_message(record.id)
    if isinstance(journal, SqliteJournal):
        assert list(journal.messages()) == []
    journal.close()
