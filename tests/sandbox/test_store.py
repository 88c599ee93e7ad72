"""What a host keeps: indexes cost a page, ids and stamps only grow, and an SQLite file goes on where it ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.records import Account, ApiKey, Recipient, Record
from sandbox.store import MAX_ID, HostRecords, Journal, page
from sandbox.wire import RouteRefused
from tests.sandbox.conftest import Clock, Cluster


def record(number: int) -> Record:
    return Record(id=number, from_="@a@x", to=[Recipient(addr="@b@x")], type="text/plain")


def test_pages_are_newest_first() -> None:
    ids = list(range(1, 11))
    assert page(ids, limit=3, offset=0) == [10, 9, 8]
    assert page(ids, limit=3, offset=8) == [2, 1]
    assert page(ids, limit=3, offset=10) == []
    assert page([], limit=3, offset=0) == []


def test_a_draft_sent_late_takes_its_place_by_id(clock: Clock) -> None:
    state = HostRecords(clock=clock)
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
    state = HostRecords(clock=clock)
    draft = record(state.take_id())
    state.add_draft(draft)
    state.drop_draft(draft)
    assert (state.messages, state.mailbox("@b@x").shown, state.mailbox("@a@x").sent) == ({}, [], [])
    assert state.take_id() == 2


def test_a_refused_recipient_gets_nothing(clock: Clock) -> None:
    state = HostRecords(clock=clock)
    draft = record(state.take_id())
    state.add_draft(draft)
    draft.to[0].code = 102
    state.publish(draft, state.stamp())
    assert (state.mailbox("@b@x").shown, state.mailbox("@b@x").received) == ([], [])


def test_stamps_only_grow(clock: Clock) -> None:
    state = HostRecords(clock=clock)
    first = state.stamp()
    clock.now_s -= 100
    second = state.stamp()
    parent = record(1)
    parent.time_s = first + 50
    assert first < second < parent.time_s < state.stamp(after=parent)


def test_ids_end_at_the_largest(clock: Clock) -> None:
    state = HostRecords(clock=clock)
    state.set_next_id(MAX_ID)
    assert state.take_id() == MAX_ID
    with pytest.raises(RouteRefused):
        state.take_id()


async def test_a_host_goes_on_with_its_messages_keys_and_tokens(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    await cluster.host(store=path, federated=False)
    alice, bob = await cluster.person("@alice@a.test"), await cluster.person("@bob@a.test")
    dora = await cluster.person("@dora@a.test")
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

    await cluster.host(store=path, federated=False)
    bob.url = alice.url = dora.url = cluster.urls["a.test"]
    assert await bob.message(root) == before
    assert await alice.ids() == [reply]
    assert (await alice.get(f"/{draft}/attach/a.txt")).body == b"xyz"
    assert (await alice.get(f"/{deleted}")).status == 404
    assert (await bob.sign_in()).status == 200
    assert (await dora.sign_in()).status == 200
    answer = await dora.send(alice.address, pid=batch["sha256"])
    assert answer > deleted
    assert (await alice.message(answer))["time"] > before["time"]


def test_what_a_journal_keeps_is_there_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "x.sqlite")
    record = Record(id=2**63 - 1, from_="@a@x", to=[Recipient(addr="@b@x")], type="text/plain", data=b"\xff")
    key = ApiKey(key_id="k", addr="@a@x", secret_sha256=b"\0", cidrs=("10.0.0.0/8",))
    for _ in range(2):
        journal.save("message", record.id, record)
    journal.save("key", "k", key)
    journal.save("fact", "next_id", "5")
    journal.close()
    journal = Journal(tmp_path / "x.sqlite")
    assert journal.load("message", Record) == {record.id: record}
    assert journal.load("key", ApiKey) == {"k": key}
    assert journal.load("fact", str) == {"next_id": "5"}
    assert journal.load("account", Account) == {}
    journal.drop("message", record.id)
    assert journal.load("message", Record) == {}
    journal.close()


def test_a_journal_without_a_file_keeps_nothing() -> None:
    journal = Journal()
    journal.save("fact", "next_id", "5")
    journal.drop("fact", "next_id")
    assert journal.load("fact", str) == {}
    journal.close()
