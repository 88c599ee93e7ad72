"""A host with an SQLite file goes on where it ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.journal import Journal, NoJournal, SqliteJournal
from sandbox.records import Account, ApiKey, Recipient, Record
from tests.sandbox.conftest import Town


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
