"""Lineages from the thread answer, and walked where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fmsg.errors import FmsgError, HostFailed, NotFound, refusal
from fmsg.message import AddToBatch, Message, Thread, ThreadMessage
from mcp_front.lineage import MOST_ANCESTORS, Lineage, from_message, to_message
from mcp_front.lineage import lineage as lineage_of
from tests.ledger.fake_host import ME, FakeHost


def host(messages: Mapping[int, Message | FmsgError], thread: Thread | FmsgError) -> Any:
    """A host with these messages, where a message may be an error, that answers the thread route so."""

    class Scripted(FakeHost):
        async def thread(self, message_id: int) -> Thread:
            if isinstance(thread, FmsgError):
                raise thread
            return thread

        async def message(self, message_id: int) -> Message:
            self.asked["message"] += 1
            found = messages.get(message_id, refusal(404, "message not found"))
            if isinstance(found, FmsgError):
                raise found
            return found

    return Scripted()


async def lineage(api: Any, message_id: int, *, most: int = 1_000, root_id: int = 0) -> Lineage:
    """The lineage, with a root that the ledger knows or (0) does not."""

    async def look_up_root() -> int:
        return root_id

    return await lineage_of(api, message_id, most=most, look_up_root=look_up_root)


def chain(length: int) -> dict[int, Message | FmsgError]:
    return {
        n: Message(id=n, pid=n - 1 if n > 1 else None, from_="@a@b.test", to=(ME,), time=float(n), type="text/plain")
        for n in range(1, length + 1)
    }


@pytest.mark.parametrize("status", [404, 413, 422])
async def test_where_the_thread_route_gives_no_answer_pids_are_walked(status: int) -> None:
    found = await lineage(host(chain(3), refusal(status, "no")), 3)
    assert [message.id for message in found.messages] == [1, 2, 3]
    assert (found.root_id, found.trigger.id, found.complete) == (1, 3, True)


async def test_other_refusals_are_raised() -> None:
    with pytest.raises(HostFailed):
        await lineage(host(chain(3), refusal(500, "no")), 3)


async def test_an_unknown_message_is_told_as_that() -> None:
    with pytest.raises(NotFound):
        await lineage(host({}, refusal(404, "no")), 3)


@pytest.mark.parametrize("status", [403, 404])
async def test_an_ancestor_out_of_sight_ends_the_walk(status: int) -> None:
    messages = chain(3) | {1: refusal(status, "no")}
    found = await lineage(host(messages, refusal(404, "no")), 3)
    assert [message.visible for message in found.messages] == [False, True, True]
    assert found.complete is False
    assert found.root_id == 1


async def test_a_walk_ends_also_in_a_circle_and_in_a_very_deep_thread() -> None:
    circle = chain(3) | {1: Message(id=1, pid=3, time=1.0)}
    found = await lineage(host(circle, refusal(404, "no")), 3)
    assert ([message.id for message in found.messages], found.complete) == ([1, 2, 3], False)
    deep = host(chain(1000), refusal(404, "no"))
    found = await lineage(deep, 1000)
    assert found.complete is False
    assert deep.asked["message"] == MOST_ANCESTORS + 1


@pytest.mark.parametrize("most", [1, 2, 20])
async def test_of_a_very_deep_thread_with_a_known_root_only_what_is_wanted_is_asked_for(most: int) -> None:
    deep = host(chain(1000), refusal(422, "thread_too_deep"))
    found = await lineage(deep, 1000, most=most, root_id=1)
    newest = list(range(1000 - max(most - 2, 0), 1001))
    assert [message.id for message in found.messages] == [1, *newest]
    assert (found.root_id, found.complete, found.skipped) == (1, False, True)
    assert deep.asked["message"] == len(newest) + 1


async def test_a_known_root_that_has_a_parent_itself_ends_the_walk() -> None:
    """It stands for a root that nobody can reach; and one that is gone is told as not visible."""
    found = await lineage(host(chain(300), refusal(422, "no")), 300, most=3, root_id=50)
    assert ([message.id for message in found.messages], found.root_id) == ([50, 299, 300], 50)
    gone = host(chain(300) | {1: refusal(404, "no")}, refusal(422, "no"))
    assert [message.visible for message in (await lineage(gone, 300, most=3, root_id=1)).messages] == [
        False,
        True,
        True,
    ]


async def test_a_thread_that_is_not_so_deep_is_whole_with_a_known_root_too() -> None:
    found = await lineage(host(chain(20), refusal(404, "no")), 20, most=20, root_id=1)
    assert (len(found.messages), found.complete, found.skipped) == (20, True, False)


async def test_an_answer_without_the_message_itself_is_not_believed() -> None:
    thread = Thread(root_id=1, trigger_id=2, messages=(ThreadMessage(id=1),))
    found = await lineage(host(chain(2), thread), 2)
    assert found.trigger.id == 2


async def test_participants_are_those_of_the_trigger_but_the_caller() -> None:
    trigger = ThreadMessage(
        id=1,
        from_="@Ann@a.test",
        to=("@ME@here.test", "@bob@b.test"),
        add_to=(AddToBatch(add_to_from="@BOB@b.test", to=("@cat@c.test",)),),
    )
    found = await lineage(host({}, Thread(root_id=1, trigger_id=1, messages=(trigger,))), 1)
    assert found.participants_but(ME) == ("@ann@a.test", "@bob@b.test", "@cat@c.test")


def test_there_and_back() -> None:
    message = Message(id=1, from_="@a@b.test", type="text/plain", size=2, short_text="hi", time=1.0, sha256="ab")
    again = to_message(from_message(message))
    assert again.whole_text() == "hi"
    assert (again.sha256, again.type, again.size, again.time) == ("ab", "text/plain", 2, 1.0)
