"""Who hears of what, and when events get lost or swapped (FMSG-003, "WebSocket")."""

from __future__ import annotations

import random

from sandbox.events import Event, Listener
from sandbox.switches import Switches
from tests.sandbox.conftest import Cluster
from tests.sandbox.people import Person


class Ear:
    """Remembers what it was offered."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def offer(self, frame: bytes) -> None:
        """Keep the frame."""
        self.frames.append(frame)


def listener(*, shuffle: bool = False) -> Listener:
    def build(event: Event, viewer: str) -> bytes | None:
        return None if event.message_id == 13 else str(event.message_id).encode()

    return Listener(build, shuffle=lambda: shuffle, rng=random.Random(1))


async def test_a_new_message_goes_to_each_local_recipient(alice: Person, bob: Person) -> None:
    async with alice.listen() as hers, bob.listen() as his:
        number = await alice.send(bob.address, alice.address)
        assert [(await one.next())[0] for one in (hers, his)] == ["new_msg", "new_msg"]
        assert (await hers.next())[1]["id"] == number


async def test_every_socket_of_an_identity_hears(alice: Person, bob: Person) -> None:
    async with bob.listen() as one, bob.listen() as other:
        number = await alice.send(bob.address)
        assert (await one.next())[1]["id"] == number
        assert (await other.next())[1]["id"] == number
        assert bob.host.control.stats()["sockets"] == {bob.address: 2}


async def test_an_event_carries_the_message_as_the_list_does(alice: Person, bob: Person) -> None:
    async with bob.listen() as ears:
        await alice.send(bob.address, topic="T")
        _, message = await ears.next()
    (listed,) = (await bob.get()).json
    assert message.keys() == listed.keys()
    assert (message["id"], message["topic"]) == (listed["id"], "T")


async def test_recipients_added_goes_to_everybody_and_alone_to_the_new_one(
    cluster: Cluster, alice: Person, bob: Person
) -> None:
    dora = await cluster.person("@dora@a.test")
    number = await alice.send(bob.address)
    async with alice.listen() as hers, bob.listen() as his, dora.listen() as new:
        await bob.post(f"/{number}/add-to", {"add_to": [dora.address]})
        for ears in (hers, his, new):
            kind, message = await ears.next()
            assert (kind, message["id"], message["add_to"][0]["to"]) == ("recipients_added", number, [dora.address])
        await alice.send(dora.address, topic="after")
        assert (await new.next())[1]["topic"] == "after"


async def test_drafts_are_not_announced(alice: Person, bob: Person) -> None:
    async with bob.listen() as ears:
        await alice.draft(bob.address)
        number = await alice.send(bob.address)
        assert (await ears.next())[1]["id"] == number


async def test_a_deaf_listener_loses_events_while_sockets_stay_open(alice: Person, bob: Person) -> None:
    async with bob.listen() as ears:
        bob.host.control.deafen()
        lost = await alice.send(bob.address)
        bob.host.control.undeafen()
        heard = await alice.send(bob.address)
        assert (await ears.next())[1]["id"] == heard
    assert await bob.ids() == [heard, lost]
    assert bob.host.control.stats()["events_lost"] == 1


async def test_single_events_can_be_lost(alice: Person, bob: Person) -> None:
    control = bob.host.control
    async with alice.listen() as hers, bob.listen() as his:
        control.lose_events(address=bob.address)
        first = await alice.send(bob.address)
        assert (await hers.next())[1]["id"] == first
        control.lose_events(2)
        await alice.send(bob.address)
        while control.stats()["events_lost"] < 3:
            await alice.get()
        last = await alice.send(bob.address)
        assert (await his.next())[1]["id"] == last


async def test_an_event_may_come_before_its_message_can_be_read(cluster: Cluster) -> None:
    await cluster.host(switches=Switches(event_lead_s=0.05))
    alice, bob = await cluster.person("@alice@a.test"), await cluster.person("@bob@a.test")
    async with bob.listen() as ears:
        number = await alice.send(bob.address)
        assert (await ears.next())[1]["id"] == number
        answer = await bob.get(f"/{number}")
        assert (answer.status, answer.error) == (404, "message not found")
        assert await bob.ids() == []
        assert (await alice.get(f"/{number}")).status == 200
        while (await bob.get(f"/{number}")).status == 404:
            pass
        assert await bob.ids() == [number]


async def test_events_that_wait_together_may_be_swapped() -> None:
    ear, quiet = Ear(), Ear()
    for told, shuffle in ((ear, True), (quiet, False)):
        ears = listener(shuffle=shuffle)
        ears.add("@a@x", told)
        for number in range(20, 60):
            ears.notify("new_msg", number, ["@A@x"])
        ears._work()
    assert [int(frame) for frame in quiet.frames] == list(range(20, 60))
    swapped = [int(frame) for frame in ear.frames]
    assert swapped != sorted(swapped)
    assert sorted(swapped) == list(range(20, 60))


async def test_an_event_that_cannot_be_built_is_lost() -> None:
    ears, ear = listener(), Ear()
    ears.add("@a@x", ear)
    ears.notify("new_msg", 13, ["@a@x"])
    ears._work()
    assert (ear.frames, ears.lost) == ([], 1)


async def test_many_waiting_events_are_worked_off_in_passes() -> None:
    ears, ear = listener(), Ear()
    ears.add("@a@x", ear)
    for _ in range(100):
        ears.notify("new_msg", 1, ["@a@x"])
    ears._work()
    assert len(ear.frames) == 64
    ears._work()
    assert len(ear.frames) == 100


async def test_a_socket_that_left_hears_nothing() -> None:
    ears, ear = listener(), Ear()
    ears.add("@a@x", ear)
    ears.notify("new_msg", 1, ["@a@x"])
    ears.remove("@A@x", ear)
    ears.remove("@A@x", ear)
    ears._work()
    assert (ear.frames, ears.counts(), ears.ears()) == ([], {}, [])


async def test_what_waits_is_forgotten_at_the_end() -> None:
    ears, ear = listener(), Ear()
    ears.add("@a@x", ear)
    ears.notify("new_msg", 1, ["@a@x"])
    ears.close()
    ears._work()
    assert ear.frames == []
