"""Reactions (FMSG-005; FMSG-003, "react")."""

from __future__ import annotations

import pytest

from sandbox.reactions import is_single_emoji
from sandbox.switches import Switches
from tests.sandbox.conftest import Town
from tests.sandbox.people import Person


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


async def test_who_may_not_react_and_to_what(town: Town, alice: Person, bob: Person) -> None:
    eve = await town.person("@eve@a.test")
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


async def test_somebody_added_reacts(town: Town, alice: Person, carol: Person) -> None:
    dora = await town.person("@dora@a.test")
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


async def test_the_event_may_show_the_reaction_itself(town: Town) -> None:
    await town.host(switches=Switches(reaction_event_subject=False))
    alice, bob = await town.person("@alice@a.test"), await town.person("@bob@a.test")
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
