"""Deliveries and federation: codes per recipient, confirmation, retry, parents by hash (FMSG-003, "Message object")."""

from __future__ import annotations

from typing import Any

from sandbox.switches import Switches
from tests.sandbox.conftest import Cluster
from tests.sandbox.people import Person


def codes(message: dict[str, Any]) -> list[tuple[int | None, bool]]:
    """Code and whether it was delivered, per recipient."""
    return [(item["response_code"], item["time_delivered"] is not None) for item in message["to_delivery"]]


async def arrival(person: Person, sender: Person, *to: str, **fields: Any) -> tuple[int, int]:
    """Send, and wait until it arrived: its id at the sender's host and at the person's."""
    async with person.listen() as ears:
        number = await sender.send(person.address, *to, **fields)
        kind, message = await ears.next()
        assert kind == "new_msg"
    found = message["id"]
    assert isinstance(found, int)
    return number, found


async def test_a_message_arrives_under_an_id_of_its_own(alice: Person, carol: Person) -> None:
    carol.host.control.set_next_id(700)
    number, arrived = await arrival(carol, alice, topic="T")
    assert (number, arrived) == (1, 700)
    here, there = await alice.message(number), await carol.message(arrived)
    assert here["sha256"] == there["sha256"]
    assert (here["time"], here["topic"]) == (there["time"], there["topic"])


async def test_delivery_is_confirmed_to_the_sender(alice: Person, carol: Person) -> None:
    async with alice.listen() as ears:
        number = await alice.send(carol.address)
        kind, message = await ears.next()
    assert (kind, message["id"]) == ("delivered", number)
    assert codes(message) == [(200, True)]


async def test_a_local_delivery_is_confirmed_too(alice: Person, bob: Person) -> None:
    async with alice.listen() as ears:
        await alice.send(bob.address)
        assert (await ears.next())[0] == "delivered"


async def test_a_delivery_may_take_its_time(cluster: Cluster) -> None:
    await cluster.host(switches=Switches(delivery_delay_s=0.05, sender_code_200=False))
    alice, bob = await cluster.person("@alice@a.test"), await cluster.person("@bob@a.test")
    async with alice.listen() as hers, bob.listen() as his:
        number = await alice.send(bob.address)
        assert codes((await his.next())[1]) == [(None, False)]
        assert codes(await alice.message(number)) == [(None, False)]
        assert codes((await hers.next())[1]) == [(None, True)]


async def test_an_unknown_user_is_a_code_and_no_refusal(alice: Person, carol: Person) -> None:
    number, _ = await arrival(carol, alice, "@nobody@b.test", "@nobody@a.test")
    assert codes(await alice.message(number)) == [(200, True), (100, False), (100, False)]


async def test_a_recipient_may_refuse_by_code(alice: Person, bob: Person, carol: Person) -> None:
    bob.host.control.set_address(bob.address, delivery_code=102)
    carol.host.control.set_address(carol.address, delivery_code=101)
    async with alice.listen() as ears:
        number = await alice.send(bob.address, carol.address, alice.address)
        while (await ears.next())[0] != "delivered":
            pass
    assert codes(await alice.message(number)) == [(102, False), (101, False), (200, True)]
    assert await bob.ids() == []
    assert (await bob.get(f"/{number}")).status == 404
    assert await carol.ids() == []


async def test_a_host_may_refuse_everything(alice: Person, carol: Person) -> None:
    carol.host.control.refuse_deliveries(4)
    async with alice.listen() as ears:
        number = await alice.send(carol.address, alice.address)
        assert (await ears.next())[0] in ("new_msg", "delivered")
        assert (await ears.next())[0] in ("new_msg", "delivered")
    assert codes(await alice.message(number))[0] == (4, False)


async def test_a_domain_nobody_knows_is_pending(alice: Person) -> None:
    async with alice.listen() as ears:
        number = await alice.send("@x@nowhere.test", alice.address)
        await ears.next()
        await ears.next()
    assert codes(await alice.message(number))[0] == (-1, False)
    assert alice.host.control.stats()["undelivered"] == 1


async def test_what_waits_is_delivered_in_order_when_the_link_is_mended(alice: Person, carol: Person) -> None:
    alice.host.control.cut_link("b.test")
    async with carol.listen() as theirs, alice.listen() as hers:
        first = await alice.send(carol.address, alice.address)
        while (await hers.next())[0] != "delivered":
            pass
        assert codes(await alice.message(first))[0] == (-1, False)
        await alice.post(f"/{first}/add-to", {"add_to": ["@dora@b.test"]})
        await alice.send(carol.address, topic="second")
        alice.host.control.mend_link("b.test")
        kind, message = await theirs.next()
        assert (kind, message["topic"]) == ("new_msg", "")
        assert (await theirs.next())[1]["topic"] == "second"
        while True:
            _, told = await hers.next()
            if told["id"] == first and codes(told)[0] == (200, True):
                break


async def test_a_domain_that_comes_back_is_tried_again(cluster: Cluster) -> None:
    await cluster.host("a.test", switches=Switches(retry_s=0.02))
    alice = await cluster.person("@alice@a.test")
    number = await alice.send("@carol@b.test")
    async with alice.listen() as ears:
        await cluster.host("b.test")
        cluster.hosts["b.test"].control.create_address("@carol@b.test")
        while True:
            kind, message = await ears.next()
            if kind == "delivered":
                break
    assert (message["id"], codes(message)) == (number, [(200, True)])


async def test_on_the_receiving_host_other_hosts_outcomes_are_unknown(
    cluster: Cluster, alice: Person, bob: Person, carol: Person
) -> None:
    _, arrived = await arrival(carol, alice, bob.address)
    assert codes(await carol.message(arrived)) == [(None, True), (-2, False)]


async def test_a_reply_across_hosts_finds_its_parent_by_hash(alice: Person, carol: Person) -> None:
    root, arrived = await arrival(carol, alice)
    reply, came_back = await arrival(alice, carol, pid=arrived)
    message = await alice.message(came_back)
    assert message["pid"] == root
    thread = (await alice.get(f"/{came_back}/thread/messages")).json
    assert [item["id"] for item in thread["messages"]] == [root, came_back]
    assert (await carol.get(f"/{reply}/thread/messages")).json["root_id"] == arrived


async def test_a_reply_no_recipient_host_can_take(cluster: Cluster, alice: Person, bob: Person, carol: Person) -> None:
    root = await alice.send(bob.address)
    number = await alice.draft(carol.address, pid=root)
    answer = await alice.post(f"/{number}/send")
    assert answer.status == 409
    assert "b.test" in answer.error


async def test_a_reply_to_a_domain_that_never_had_the_parent(alice: Person, bob: Person, carol: Person) -> None:
    root = await alice.send(bob.address)
    number = await alice.draft(bob.address, carol.address, pid=root)
    answer = await alice.post(f"/{number}/send")
    assert answer.status == 409
    assert "b.test: the message being replied to was never addressed to this domain" in answer.error
    assert (await alice.message(number))["time"] is None


async def test_a_reaction_to_a_domain_that_refused_the_subject(alice: Person, bob: Person, carol: Person) -> None:
    carol.host.control.refuse_deliveries(4)
    async with alice.listen() as ears:
        root = await alice.send(bob.address, carol.address)
        await ears.next()
    answer = await bob.post(f"/{root}/react", {"emoji": "👍"})
    assert answer.status == 409
    assert "b.test: delivery of the message being replied to failed there" in answer.error


async def test_a_reply_that_overtakes_the_parent_is_refused_by_code(
    cluster: Cluster, alice: Person, carol: Person
) -> None:
    dora = await cluster.person("@dora@c.test")
    dora.host.control.cut_link("a.test")
    async with carol.listen() as ears:
        await alice.send(carol.address, dora.address)
        arrived = (await ears.next())[1]["id"]
    async with carol.listen() as ears:
        number = await carol.send(alice.address, dora.address, pid=arrived)
        await ears.next()
    assert codes(await carol.message(number)) == [(200, True), (6, False)]


async def test_a_compressed_body_has_both_lengths(alice: Person, bob: Person, carol: Person) -> None:
    text = "every word of this is repeated " * 300
    number, arrived = await arrival(carol, alice, bob.address, data=text)
    here, there = await alice.message(number), await carol.message(arrived)
    assert (here["deflate"], here["size"]) == (True, len(text))
    assert there["deflate"] is True
    assert len(there["short_text"]) > there["size"]
    assert (await carol.get(f"/{arrived}/data")).body == text.encode()
    (shown,) = (await carol.get(f"/{arrived}/thread/messages")).json["messages"]
    assert (shown["deflate"], shown["body"]["text"], shown["size"]) == (True, text, there["size"])


async def test_adding_across_hosts(cluster: Cluster, alice: Person, bob: Person, carol: Person) -> None:
    dora = await cluster.person("@dora@c.test")
    number, arrived = await arrival(carol, alice, topic="T")
    async with alice.listen() as hers, carol.listen() as theirs, dora.listen() as new:
        batch = (await carol.post(f"/{arrived}/add-to", {"add_to": [dora.address]})).json
        assert (await theirs.next())[0] == "recipients_added"
        kind, message = await hers.next()
        assert (kind, message["id"], message["add_to"][0]["sha256"]) == ("recipients_added", number, batch["sha256"])
        kind, message = await new.next()
        assert (kind, message["topic"]) == ("recipients_added", "T")
    reply, seen = await arrival(alice, dora, pid=batch["sha256"])
    assert (await alice.message(seen))["pid"] == number
    assert (await dora.message(reply))["pid"] == message["id"]


async def test_adding_to_a_draft_makes_it_a_new_message_elsewhere(alice: Person, bob: Person, carol: Person) -> None:
    number = await alice.draft(bob.address)
    await alice.post(f"/{number}/add-to", {"add_to": [carol.address]})
    async with carol.listen() as ears:
        await alice.post(f"/{number}/send")
        assert (await ears.next())[0] == "new_msg"


async def test_three_people_on_two_hosts_share_one_copy_per_host(
    cluster: Cluster, alice: Person, carol: Person
) -> None:
    dora = await cluster.person("@dora@b.test")
    _, arrived = await arrival(carol, alice, dora.address)
    assert await dora.ids() == [arrived]
