"""Drafts, sending, adding, reading, reacting: what a host accepts and how it words a refusal (FMSG-003, "Routes")."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox.messages import is_single_emoji
from sandbox.switches import OLDER, Limits, Switches
from tests.sandbox.conftest import Cluster
from tests.sandbox.people import Person


async def test_a_draft_gets_its_id_at_once_and_keeps_it(alice: Person, bob: Person) -> None:
    early = await alice.draft(bob.address)
    later = await alice.send(bob.address)
    answer = await alice.post(f"/{early}/send")
    assert (answer.status, answer.json["id"]) == (200, early)
    assert early < later
    assert answer.json["time"] > (await alice.message(later))["time"]
    assert await bob.ids() == [later, early]


@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        ({"to": []}, 400, "to list must not be empty"),
        ({"to": None}, 400, "to list must not be empty"),
        ({"to": "@bob@a.test"}, 400, "invalid to"),
        ({"to": ["bob"]}, 400, 'invalid to address: "bob"'),
        ({"from": "@bob@a.test"}, 403, "from address must match authenticated user"),
        ({"topic": "t", "pid": 1}, 400, "topic must be empty when pid is supplied"),
        ({"topic": 3}, 400, "invalid request body: version is a number, type and topic are strings"),
        ({"pid": 999}, 400, "parent message not found"),
        ({"pid": "f" * 64}, 400, "parent message not found"),
        ({"pid": "12"}, 400, "pid must be a positive integer or a 64-character sha256 string"),
        ({"pid": 0}, 400, "pid must be a positive integer or a 64-character sha256 string"),
        ({"data": 3}, 400, "invalid data"),
        ({"topic": "x" * 256}, 500, "failed to create message"),
        ({"topic": "a\0b"}, 500, "failed to create message"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_draft_that_is_refused(alice: Person, change: dict[str, Any], status: int, error: str) -> None:
    answer = await alice.post("", {**alice.wire("@bob@a.test"), **change})
    assert (answer.status, answer.error) == (status, error)
    assert (await alice.get("/sent")).json == []


async def test_inputs_that_break_current_hosts_may_be_refused_properly(cluster: Cluster) -> None:
    await cluster.host(switches=Switches(broken_inputs_500=False))
    alice = await cluster.person("@alice@a.test")
    for change in ({"topic": "x" * 256}, {"topic": "\0"}, {"to": [f"@u{n}@a.test" for n in range(300)]}):
        assert (await alice.post("", {**alice.wire("@bob@a.test"), **change})).status == 400


async def test_a_body_that_is_no_json_object(alice: Person) -> None:
    for data in (b"{", b"[]", b"\xff"):
        answer = await alice.ask("POST", "", data=data)
        assert (answer.status, answer.error.startswith("invalid request body")) == (400, True)


async def test_a_body_that_is_too_large(cluster: Cluster) -> None:
    await cluster.host(limits=Limits(body_bytes=4))
    alice = await cluster.person("@alice@a.test")
    assert (await alice.post("", alice.wire("@bob@a.test"))).status == 413


async def test_put_replaces_a_draft(alice: Person, bob: Person) -> None:
    number = await alice.draft("@dora@a.test", topic="old")
    await alice.attach(number, "kept.txt", b"1")
    answer = await alice.ask("PUT", f"/{number}", json=alice.wire(bob.address, topic="new"))
    assert (answer.status, answer.json) == (200, {"id": number})
    message = await bob.message(number)
    assert (message["topic"], message["to"]) == ("new", [bob.address])
    assert message["attachments"] == [{"filename": "kept.txt", "size": 1}]


async def test_put_takes_no_recipients_and_send_then_refuses(alice: Person) -> None:
    number = await alice.draft("@bob@a.test")
    assert (await alice.ask("PUT", f"/{number}", json=alice.wire())).status == 200
    answer = await alice.post(f"/{number}/send")
    assert (answer.status, answer.error) == (400, "message is not sendable: no recipients")


async def test_a_sent_message_can_neither_be_changed_nor_deleted(alice: Person) -> None:
    number = await alice.send("@bob@a.test")
    assert (await alice.ask("PUT", f"/{number}", json=alice.wire("@bob@a.test"))).status == 403
    assert (await alice.ask("DELETE", f"/{number}")).status == 403


async def test_a_deleted_draft_is_gone_and_its_id_is_not_reused(alice: Person, bob: Person) -> None:
    number = await alice.draft(bob.address)
    answer = await alice.ask("DELETE", f"/{number}")
    assert (answer.status, answer.body) == (204, b"")
    assert (await alice.get(f"/{number}")).status == 404
    assert await bob.ids() == []
    assert await alice.draft(bob.address) > number


async def test_only_the_owner_touches_a_draft(alice: Person, bob: Person) -> None:
    number = await alice.draft(bob.address)
    assert (await bob.ask("PUT", f"/{number}", json=bob.wire(alice.address))).status == 403
    assert (await bob.ask("DELETE", f"/{number}")).status == 403
    assert (await bob.post(f"/{number}/send")).status == 403


async def test_of_eight_sends_of_one_draft_one_succeeds(alice: Person, bob: Person) -> None:
    number = await alice.draft(bob.address)
    answers = await asyncio.gather(*(alice.post(f"/{number}/send") for _ in range(8)))
    assert sorted(answer.status for answer in answers) == [200] + [409] * 7
    assert {answer.error for answer in answers if answer.status == 409} == {"message already sent"}


@pytest.mark.parametrize(
    ("missing", "problem"), [("version", "unsupported version 0"), ("type", "no type"), ("version type", None)]
)
async def test_a_draft_that_misses_fields_is_stored_and_not_sent(
    alice: Person, bob: Person, missing: str, problem: str | None
) -> None:
    fields = {name: value for name, value in alice.wire(bob.address).items() if name not in missing.split()}
    created = await alice.post("", fields)
    assert created.status == 201
    answer = await alice.post(f"/{created.json['id']}/send")
    assert answer.status == 400
    assert answer.error == f"message is not sendable: {problem or 'unsupported version 0; no type'}"
    assert await bob.ids() == [created.json["id"]]  # still a draft, which current hosts show
    assert (await bob.message(created.json["id"]))["time"] is None


async def test_the_size_a_client_gives_is_not_looked_at(alice: Person, bob: Person) -> None:
    number = await alice.send(bob.address, size=99)
    assert (await bob.message(number))["size"] == len("hello")


async def test_a_recipient_named_twice_gets_one_copy(alice: Person, bob: Person) -> None:
    number = await alice.send(bob.address, bob.address.upper().replace("A.TEST", "a.test"))
    assert (await bob.message(number))["to"] == [bob.address]


@pytest.mark.parametrize(
    "change", [{"topic": "é" * 255}, {"to": [f"@u{n}@a.test" for n in range(300)]}], ids=["510 bytes", "300 recipients"]
)
async def test_what_the_wire_cannot_carry_is_stored_and_breaks_the_sending(
    alice: Person, change: dict[str, Any]
) -> None:
    created = await alice.post("", {**alice.wire("@bob@a.test"), **change})
    assert created.status == 201
    answer = await alice.post(f"/{created.json['id']}/send")
    assert (answer.status, answer.error) == (500, "failed to finalize message")
    assert (await alice.message(created.json["id"]))["time"] is None


async def test_the_answer_of_send_has_the_hash_and_a_draft_has_none(alice: Person, bob: Person) -> None:
    number = await alice.draft(bob.address)
    assert (await alice.message(number))["sha256"] is None
    sent = (await alice.post(f"/{number}/send")).json
    assert set(sent) == {"id", "time", "sha256"}
    assert sent["sha256"] == (await bob.message(number))["sha256"]
    reply = await bob.send(alice.address, pid=number)
    assert (await alice.message(reply))["psha256"] == sent["sha256"]


async def test_creating_is_not_idempotent(alice: Person, bob: Person) -> None:
    assert await alice.draft(bob.address) != await alice.draft(bob.address)


async def test_a_reply_names_its_parent_by_number_or_hash(alice: Person, bob: Person) -> None:
    root = await alice.send(bob.address)
    digest = (await bob.message(root))["sha256"]
    for pid in (root, digest):
        message = await alice.message(await bob.send(alice.address, pid=pid))
        assert (message["pid"], message["has_pid"]) == (root, True)


async def test_a_reply_to_what_one_cannot_see(cluster: Cluster, alice: Person, bob: Person) -> None:
    root = await alice.send(bob.address)
    eve = await cluster.person("@eve@a.test")
    answer = await eve.post("", eve.wire(alice.address, pid=root))
    assert answer.status == 403
    assert answer.error.startswith("not a participant of this parent; ")


async def test_nothing_is_built_on_a_draft_or_a_terminal_message(alice: Person, bob: Person) -> None:
    for parent in (await alice.draft(bob.address), await alice.send(bob.address, terminal=True)):
        answer = await bob.post("", bob.wire(alice.address, pid=parent))
        assert (answer.status, answer.error) == (409, "parent is a draft or terminal message")


async def test_reading_is_idempotent(alice: Person, bob: Person) -> None:
    number = await alice.send(bob.address)
    first = await bob.post(f"/{number}/read")
    assert first.status == 200
    assert first.json == {"id": number, "time_read": (await bob.message(number))["time_read"]}
    assert (await bob.post(f"/{number}/read")).json == first.json


async def test_only_recipients_read(alice: Person, bob: Person) -> None:
    number = await alice.send(bob.address)
    answer = await alice.post(f"/{number}/read")
    assert (answer.status, answer.error) == (404, "message not found")
    assert (await bob.post("/999/read")).status == 404


async def test_adding_recipients(cluster: Cluster, alice: Person, bob: Person) -> None:
    dora = await cluster.person("@dora@a.test")
    number = await alice.send(bob.address)
    answer = await bob.post(f"/{number}/add-to", {"add_to": [dora.address, "@nobody@a.test"]})
    assert answer.status == 200
    assert answer.json["id"] == number
    assert answer.json["added"] == 2
    (batch,) = (await dora.message(number))["add_to"]
    assert batch["batch_id"] == answer.json["batch_id"]
    assert batch["sha256"] == answer.json["sha256"]
    assert (batch["add_to_from"], batch["to"]) == (bob.address, [dora.address, "@nobody@a.test"])
    assert [item["response_code"] for item in batch["to_delivery"]] == [200, 100]
    assert batch["time"] > (await dora.message(number))["time"]
    assert await dora.ids() == [number]


@pytest.mark.parametrize(
    ("add_to", "error"),
    [
        ([], "add_to list must not be empty"),
        (None, "add_to list must not be empty"),
        (["dora"], 'invalid add_to address: "dora"'),
        (["@d@a.test", "@D@a.test"], "duplicate recipient in add_to"),
        (["@first@a.test"], 'already added: "@first@a.test"'),
    ],
)
async def test_adding_that_is_refused(alice: Person, add_to: object, error: str) -> None:
    number = await alice.send("@bob@a.test")
    await alice.post(f"/{number}/add-to", {"add_to": ["@first@a.test"]})
    answer = await alice.post(f"/{number}/add-to", {"add_to": add_to})
    assert (answer.status, answer.error) == (400, error)


async def test_an_original_recipient_may_be_added(alice: Person, bob: Person) -> None:
    number = await alice.send(bob.address)
    assert (await alice.post(f"/{number}/add-to", {"add_to": [bob.address]})).status == 200


async def test_who_was_added_may_not_add(cluster: Cluster, alice: Person, bob: Person) -> None:
    dora = await cluster.person("@dora@a.test")
    number = await alice.send(bob.address)
    await alice.post(f"/{number}/add-to", {"add_to": [dora.address]})
    answer = await dora.post(f"/{number}/add-to", {"add_to": ["@eve@a.test"]})
    assert (answer.status, answer.error) == (403, "only existing participants may add recipients")


async def test_nobody_is_added_to_a_terminal_message(alice: Person, bob: Person) -> None:
    number = await alice.send(bob.address, terminal=True)
    assert (await alice.post(f"/{number}/add-to", {"add_to": ["@dora@a.test"]})).status == 409


async def test_adding_to_a_draft_has_no_hash_until_it_is_sent(cluster: Cluster, alice: Person, bob: Person) -> None:
    dora = await cluster.person("@dora@a.test")
    number = await alice.draft(bob.address)
    answer = await alice.post(f"/{number}/add-to", {"add_to": [dora.address]})
    assert answer.json["sha256"] is None
    async with dora.listen() as ears:
        await alice.post(f"/{number}/send")
        kind, message = await ears.next()
    assert kind == "new_msg"
    assert len(message["add_to"][0]["sha256"]) == 64


async def test_who_was_added_replies_by_the_batchs_hash(cluster: Cluster, alice: Person, bob: Person) -> None:
    dora = await cluster.person("@dora@a.test")
    number = await alice.send(bob.address)
    batch = (await alice.post(f"/{number}/add-to", {"add_to": [dora.address]})).json
    for pid in (number, (await alice.message(number))["sha256"]):
        answer = await dora.post("", dora.wire(alice.address, pid=pid))
        assert answer.status == 403
        assert answer.error.startswith("not a participant of this parent; ")
    reply = await dora.send(alice.address, pid=batch["sha256"])
    assert (await alice.message(reply))["pid"] == number


async def test_somebody_elses_batch_does_not_help(cluster: Cluster, alice: Person, bob: Person) -> None:
    dora = await cluster.person("@dora@a.test")
    number = await alice.send(bob.address)
    other = (await alice.post(f"/{number}/add-to", {"add_to": ["@eve@a.test"]})).json
    await alice.post(f"/{number}/add-to", {"add_to": [dora.address]})
    assert (await dora.post("", dora.wire(alice.address, pid=other["sha256"]))).status == 403


async def test_on_older_hosts_who_was_added_replies_by_number(cluster: Cluster) -> None:
    await cluster.host(switches=OLDER)
    alice, dora = await cluster.person("@alice@a.test"), await cluster.person("@dora@a.test")
    number = await alice.send("@bob@a.test")
    answer = (await alice.post(f"/{number}/add-to", {"add_to": [dora.address]})).json
    assert answer == {"id": number, "added": 1}
    assert "sha256" not in (await dora.message(number))["add_to"][0]
    assert (await alice.message(await dora.send(alice.address, pid=number)))["pid"] == number


async def test_addresses_compare_in_lower_case(cluster: Cluster, alice: Person) -> None:
    arger = await cluster.person("@ärger@a.test")
    number = await alice.send("@ÄRGER@A.test")
    assert await arger.ids() == [number]
    assert (await arger.post(f"/{number}/read")).status == 200


async def test_addresses_that_only_folding_joins_are_two_accounts(cluster: Cluster, alice: Person) -> None:
    strasse, eszett = await cluster.person("@strasse@a.test"), await cluster.person("@straße@a.test")
    number = await alice.send("@STRASSE@a.test")
    assert (await strasse.ids(), await eszett.ids()) == ([number], [])
    assert (await eszett.get(f"/{number}")).status == 403


async def test_an_address_that_was_added_does_not_become_known_by_that(alice: Person, bob: Person) -> None:
    number = await alice.send(bob.address)
    for _ in range(2):
        await alice.post(f"/{number}/add-to", {"add_to": ["@nobody@a.test"]})
        (batch,) = (await alice.message(number))["add_to"]
        assert batch["to_delivery"][0]["response_code"] == 100
    later = await alice.message(await alice.send("@nobody@a.test"))
    assert later["to_delivery"][0]["response_code"] == 100
    alice.host.control.create_address("@nobody@a.test")
    assert (await alice.message(number))["add_to"][0]["to_delivery"][0]["response_code"] == 100


async def test_older_hosts_ignore_terminal(cluster: Cluster) -> None:
    await cluster.host(switches=OLDER)
    alice, bob = await cluster.person("@alice@a.test"), await cluster.person("@bob@a.test")
    number = await alice.send(bob.address, terminal=True)
    await bob.send(alice.address, pid=number)


async def test_a_reaction_is_a_terminal_message(alice: Person, bob: Person) -> None:
    subject = await alice.send(bob.address, important=True)
    answer = await bob.post(f"/{subject}/react", {"emoji": "👍"})
    assert answer.status == 201
    reaction = await alice.message(answer.json["id"])
    assert (reaction["time"], reaction["sha256"]) == (answer.json["time"], answer.json["sha256"])
    assert (reaction["pid"], reaction["to"], reaction["reaction"]) == (subject, [alice.address], "👍")
    assert (reaction["no_reply"], reaction["terminal"], reaction["important"]) == (True, True, False)
    assert (reaction["type"], reaction["size"], reaction["topic"]) == ("text/plain;charset=UTF-8", 4, "")
    assert (await alice.message(subject))["reactions"] == [{"emoji": "👍", "from": [bob.address]}]


async def test_the_latest_reaction_of_a_person_counts(alice: Person, bob: Person) -> None:
    subject = await alice.send(bob.address)
    for emoji in ("👍", "❤️"):
        assert (await bob.post(f"/{subject}/react", {"emoji": emoji})).status == 201
    await alice.post(f"/{subject}/react", {"emoji": "❤️"})
    assert (await alice.message(subject))["reactions"] == [{"emoji": "❤️", "from": [bob.address, alice.address]}]


async def test_the_same_reaction_again_sends_nothing(alice: Person, bob: Person) -> None:
    subject = await alice.send(bob.address)
    first = await bob.post(f"/{subject}/react", {"emoji": "👍"})
    second = await bob.post(f"/{subject}/react", {"emoji": "👍"})
    assert (second.status, second.json) == (200, first.json)
    assert len(await alice.ids()) == 1


@pytest.mark.parametrize("empty", [None, ""])
async def test_clearing(alice: Person, bob: Person, empty: str | None) -> None:
    subject = await alice.send(bob.address)
    never = await bob.post(f"/{subject}/react", {"emoji": empty})
    assert (never.status, never.json["id"]) == (200, None)
    await bob.post(f"/{subject}/react", {"emoji": "👍"})
    cleared = await bob.post(f"/{subject}/react", {"emoji": empty})
    assert cleared.status == 201
    message = await alice.message(cleared.json["id"])
    assert (message["reaction"], message["size"]) == ("", 0)
    assert (await alice.message(subject))["reactions"] == []
    again = await bob.post(f"/{subject}/react", {"emoji": empty})
    assert (again.status, again.json["id"]) == (200, cleared.json["id"])


@pytest.mark.parametrize("emoji", ["👍👍", "a", " ", "👍 ", 3, "👍" + "\u200d👍" * 10, "🇩", "1", "❤", "🚗🏳"])
async def test_what_is_no_single_emoji(alice: Person, bob: Person, emoji: object) -> None:
    subject = await alice.send(bob.address)
    answer = await bob.post(f"/{subject}/react", {"emoji": emoji})
    assert (answer.status, answer.error) == (400, "emoji must be a single emoji, or empty to clear")


async def test_a_reaction_that_names_nothing_clears(alice: Person, bob: Person) -> None:
    subject = await alice.send(bob.address)
    answer = await bob.post(f"/{subject}/react", {})
    assert (answer.status, answer.json) == (200, {"id": None, "time": None, "sha256": None})
    assert (await bob.post(f"/{subject}/react")).status == 400


@pytest.mark.parametrize("emoji", ["👍", "👍🏽", "❤️", "✌🏽", "🇩🇪", "1️⃣", "👩‍👩‍👧‍👦", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "🏳️‍🌈", "🫡"])
def test_single_emoji(emoji: str) -> None:
    assert is_single_emoji(emoji)


async def test_who_may_not_react_and_to_what(cluster: Cluster, alice: Person, bob: Person) -> None:
    eve = await cluster.person("@eve@a.test")
    subject = await alice.send(bob.address)
    assert (await eve.post(f"/{subject}/react", {"emoji": "👍"})).status == 403
    terminal = await alice.send(bob.address, terminal=True)
    assert (await bob.post(f"/{terminal}/react", {"emoji": "👍"})).status == 409
    draft = await alice.draft(bob.address)
    assert (await alice.post(f"/{draft}/react", {"emoji": "👍"})).status == 409
    alone = await alice.send(alice.address)
    assert (await alice.post(f"/{alone}/react", {"emoji": "👍"})).status == 409
    assert (await alice.post("/999/react", {"emoji": "👍"})).status == 404


async def test_nothing_is_built_on_a_reaction(alice: Person, bob: Person) -> None:
    subject = await alice.send(bob.address)
    reaction = (await bob.post(f"/{subject}/react", {"emoji": "👍"})).json["id"]
    assert (await alice.post(f"/{reaction}/react", {"emoji": "👍"})).status == 409
    assert (await alice.post("", alice.wire(bob.address, pid=reaction))).status == 409
    assert (await alice.post(f"/{reaction}/add-to", {"add_to": ["@d@a.test"]})).status == 409


async def test_somebody_added_reacts(cluster: Cluster, alice: Person, carol: Person) -> None:
    dora = await cluster.person("@dora@a.test")
    subject = await alice.send(carol.address)
    await alice.post(f"/{subject}/add-to", {"add_to": [dora.address]})
    async with carol.listen() as ears:
        assert (await dora.post(f"/{subject}/react", {"emoji": "👍"})).status == 201
        while (event := await ears.next())[0] != "reaction":
            pass
    assert event[1]["reactions"] == [{"emoji": "👍", "from": [dora.address]}]


async def test_the_event_shows_the_subject_to_everybody_but_the_reactor(alice: Person, bob: Person) -> None:
    subject = await alice.send(bob.address)
    async with alice.listen() as hers, bob.listen() as his:
        reaction = (await bob.post(f"/{subject}/react", {"emoji": "👍"})).json["id"]
        kind, message = await hers.next()
        assert (kind, message["id"]) == ("reaction", subject)
        assert message["reactions"] == [{"emoji": "👍", "from": [bob.address]}]
        kind, message = await his.next()
        assert (kind, message["id"]) == ("delivered", reaction)


async def test_the_event_may_show_the_reaction_itself(cluster: Cluster) -> None:
    await cluster.host(switches=Switches(reaction_event_subject=False))
    alice, bob = await cluster.person("@alice@a.test"), await cluster.person("@bob@a.test")
    subject = await alice.send(bob.address)
    async with alice.listen() as ears:
        reaction = (await bob.post(f"/{subject}/react", {"emoji": "👍"})).json["id"]
        assert [(kind, item["id"]) for kind, item in [await ears.next()]] == [("reaction", reaction)]


async def test_a_reaction_from_another_host(alice: Person, carol: Person) -> None:
    async with alice.listen() as hers, carol.listen() as theirs:
        subject = await alice.send(carol.address)
        _, arrived = await theirs.next()
        assert (await hers.next())[0] == "delivered"
        answer = await carol.post(f"/{arrived['id']}/react", {"emoji": "🎉"})
        assert answer.status == 201
        kind, message = await hers.next()
        assert (kind, message["id"]) == ("reaction", subject)
        assert message["reactions"] == [{"emoji": "🎉", "from": [carol.address]}]
        assert (await theirs.next())[1]["to_delivery"][0]["response_code"] == 200
