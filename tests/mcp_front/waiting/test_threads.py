"""The thread that any of its messages names."""

from __future__ import annotations

import pytest

from fmsg.errors import HostUnreachable
from ledger.store import MemoryStore
from ledger.values import Baseline, Seen
from mcp_front.waiting.request import UnknownThread
from mcp_front.waiting.threads import root_named_by
from tests.mcp_front.waiting.world import ANN, ME, FakeCaller, Host


class Place:
    """A host and a ledger."""

    def __init__(self) -> None:
        self.host = Host(lambda: 1_000.0)
        self.store = MemoryStore(clock=lambda: 1_000.0)
        self.caller = FakeCaller(self.host)

    async def begin(self, *seen: Seen) -> None:
        """A ledger with these entries."""
        await self.store.ledger.begin(self.caller.key, list(seen), Baseline())

    async def root(self, message_id: int) -> int:
        """The root that the message names."""
        return await root_named_by(self.caller.api, self.store.ledger, self.caller.key, message_id)


def seen(message_id: int, *, pid: int | None = None, root: int = 0) -> Seen:
    """A ledger's entry."""
    return Seen(id=message_id, pid=pid, root=root, from_=ANN)


async def test_from_the_ledger_without_a_request() -> None:
    """A received message whose root is recorded: nobody is asked."""
    place = Place()
    await place.begin(seen(4, root=4), seen(5, pid=4, root=4))
    assert [await place.root(5), await place.root(4)] == [4, 4]
    assert not place.host.asked


@pytest.mark.parametrize("has_route", [True, False], ids=["current host", "older host"])
async def test_an_own_reply_deep_in_a_thread(has_route: bool) -> None:
    """Not in the ledger: the host is asked, by its thread route or along the parents."""
    place = Place()
    await place.begin()
    place.host.has_thread_route = has_route
    place.host.put(1)
    for message_id in range(2, 7):
        place.host.put(message_id, from_=ME, to=(ANN,), pid=message_id - 1)
    assert await place.root(6) == 1


async def test_an_own_message_without_a_ledger() -> None:
    """No ledger yet: the host's word is enough."""
    place = Place()
    place.host.put(1)
    place.host.put(2, from_=ME, to=(ANN,), pid=1)
    assert [await place.root(1), await place.root(2)] == [1, 1]


async def test_a_message_one_may_not_read_is_found_by_what_replies_to_it() -> None:
    """An invisible ancestor in the middle of a thread: a recorded reply to it names the root."""
    place = Place()
    place.host.put(1)
    place.host.put(2, pid=1, to=("@else@else.test",))
    place.host.hidden |= {1, 2}
    place.host.has_thread_route = False
    await place.begin(seen(3, pid=2, root=1))
    assert await place.root(2) == 1


async def test_a_message_one_may_not_read_and_nobody_replied_to_is_a_root() -> None:
    """Results name invisible roots: such an id is taken at its word."""
    place = Place()
    place.host.put(1, to=("@else@else.test",))
    place.host.hidden.add(1)
    assert await place.root(1) == 1


async def test_a_message_nobody_knows_is_an_error() -> None:
    """The host knows no such message, and nothing replies to it."""
    place = Place()
    await place.begin()
    with pytest.raises(UnknownThread, match="knows no message 9"):
        await place.root(9)


async def test_a_host_in_trouble_is_no_answer() -> None:
    """The host is down: the wait tries again rather than to guess."""
    place = Place()
    await place.begin()
    place.host.error = HostUnreachable("no answer")
    with pytest.raises(HostUnreachable):
        await place.root(9)
