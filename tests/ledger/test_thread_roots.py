from __future__ import annotations

from collections.abc import Sequence

import pytest

from fmsg.errors import (
    CredentialMissing,
    FmsgError,
    HostFailed,
    HostMisbehaved,
    HostRefused,
    HostUnreachable,
    Throttled,
    Unauthorized,
)
from ledger.memory import MemoryLedger
from ledger.port import LedgerUnavailable
from ledger.thread_roots import LOOK_UP, MAX_STEPS, Ancestry, resolve_roots, sort_out
from ledger.values import Baseline, CallerKey, Found, Seen
from tests.ledger.fake_host import ANN, ME, FakeHost

CALLER = CallerKey("c" * 32)


def seen(id_: int, pid: int | None = None, root: int = 0) -> Seen:
    return Seen(id=id_, pid=pid, root=root, from_=ANN)


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
async def ledger() -> MemoryLedger:
    made = MemoryLedger(clock=lambda: 1000.0)
    await made.begin(CALLER, [], Baseline())
    return made


async def resolve(host: FakeHost, ledger: MemoryLedger, *pending: Seen, last_try: bool = False) -> dict[int, int]:
    return await resolve_roots(host, ledger, CALLER, pending, last_try=last_try)


class TestAncestry:
    def test_a_message_without_parent_is_its_own_root(self) -> None:
        assert Ancestry([seen(4)]).climb(4) == (4, 0)

    def test_a_line_is_climbed_to_its_root(self) -> None:
        lineage = Ancestry([seen(4), seen(5, 4), seen(6, 5)])
        assert lineage.climb(6) == (4, 0)

    def test_or_to_a_known_root(self) -> None:
        assert Ancestry([seen(5, 4, root=1), seen(6, 5)]).climb(6) == (1, 0)

    def test_or_to_the_first_ancestor_of_which_nothing_is_known(self) -> None:
        assert Ancestry([seen(6, 5), seen(7, 6)]).climb(7) == (0, 5)

    def test_of_a_message_never_heard_of_nothing_is_known(self) -> None:
        assert Ancestry().climb(7) == (0, 7)

    @pytest.mark.parametrize("line", [[seen(4, 4)], [seen(4, 5), seen(5, 4)]])
    def test_a_line_that_bites_its_tail_ends(self, line: list[Seen]) -> None:
        assert Ancestry(line).climb(4)[0] in {4, 5}

    def test_a_cut_makes_the_highest_known_the_root(self) -> None:
        lineage = Ancestry([seen(6, 5), seen(7, 6), seen(8, 7)])
        lineage.cut(8)
        assert lineage.climb(8) == (6, 0)

    def test_a_cut_changes_nothing_where_the_root_or_nothing_is_known(self) -> None:
        lineage = Ancestry([seen(4), seen(5, 4)])
        lineage.cut(5)
        lineage.cut(99)
        assert lineage.climb(5) == (4, 0)
        assert lineage.climb(99) == (0, 99)

    def test_a_long_line_is_no_recursion(self) -> None:
        lineage = Ancestry([seen(1), *(seen(id_, id_ - 1) for id_ in range(2, 20_000))])
        assert lineage.climb(19_999) == (1, 0)

    def test_a_known_root_is_kept_when_applied(self) -> None:
        assert Ancestry([seen(5, 4)]).apply(seen(5, 4, root=3)).root == 3


class TestWithoutAnyRequest:
    async def test_no_parent_and_parents_in_the_ledger(self, host: FakeHost, ledger: MemoryLedger) -> None:
        await ledger.append(CALLER, [seen(4, root=4), seen(5, 4, root=4)], "push")
        assert await resolve(host, ledger, seen(6, 5), seen(7), seen(8, 7)) == {6: 4, 7: 7, 8: 7}
        assert host.asked == {}

    async def test_through_entries_whose_root_is_still_unknown(self, host: FakeHost, ledger: MemoryLedger) -> None:
        await ledger.append(CALLER, [seen(3, 2, root=1), seen(4, 3), seen(5, 4)], "push")
        assert await resolve(host, ledger, seen(6, 5)) == {6: 1}
        assert host.asked == {}

    async def test_a_root_that_is_given_is_kept(self, host: FakeHost, ledger: MemoryLedger) -> None:
        assert await resolve(host, ledger, seen(6, 5, root=2)) == {6: 2}

    async def test_nothing_pending(self, host: FakeHost, ledger: MemoryLedger) -> None:
        assert await resolve(host, ledger) == {}

    async def test_many_parents_far_apart_are_read_in_stretches(self, host: FakeHost, ledger: MemoryLedger) -> None:
        await ledger.append(CALLER, [seen(id_, root=id_) for id_ in range(1, 501)], "push")
        pending = [seen(1000 + id_, id_) for id_ in (1, 2, 63, 64, 65, 300, 500)]
        lineage = await sort_out(ledger, CALLER, pending)
        assert [lineage.climb(one.id)[0] for one in pending] == [1, 2, 63, 64, 65, 300, 500]


class TestAskingTheHost:
    async def test_a_reply_to_ones_own_message_takes_one_small_request(
        self, host: FakeHost, ledger: MemoryLedger
    ) -> None:
        await ledger.append(CALLER, [seen(4, root=4)], "push")
        host.put(5, from_=ME, pid=4)
        assert await resolve(host, ledger, seen(6, 5)) == {6: 4}
        assert host.asked == {"message": 1}

    async def test_several_of_one_unknown_parent_take_one_request_together(
        self, host: FakeHost, ledger: MemoryLedger
    ) -> None:
        host.put(5, from_=ME)
        assert await resolve(host, ledger, seen(6, 5), seen(7, 5), seen(8, 7)) == {6: 5, 7: 5, 8: 5}
        assert host.asked == {"message": 1}

    async def test_many_unknown_parents_are_looked_up_in_the_sent_list(
        self, host: FakeHost, ledger: MemoryLedger
    ) -> None:
        await ledger.append(CALLER, [seen(2, root=1)], "push")
        for id_ in range(10, 20):
            host.put(id_, from_=ME, pid=2 if id_ % 2 else None)
        host.put(20, from_=ME, time_s=None)
        pending = [seen(100 + id_, id_) for id_ in range(10, 20)]
        found = await resolve(host, ledger, *pending)
        assert found == {100 + id_: 1 if id_ % 2 else id_ for id_ in range(10, 20)}
        assert host.asked == {"list_sent": 1}

    async def test_what_the_sent_list_lacks_is_asked_for_one_by_one(self, host: FakeHost, ledger: MemoryLedger) -> None:
        for id_ in range(10, 14):
            host.put(id_)
        assert await resolve(host, ledger, *(seen(100 + id_, id_) for id_ in range(10, 14))) == {
            100 + id_: id_ for id_ in range(10, 14)
        }
        assert host.asked == {"list_sent": 1, "message": 4}

    async def test_a_longer_line_is_asked_for_whole(self, host: FakeHost, ledger: MemoryLedger) -> None:
        host.put(1)
        for id_ in range(2, 50):
            host.put(id_, pid=id_ - 1)
        assert await resolve(host, ledger, seen(49, 48)) == {49: 1}
        assert host.asked == {"message": 2, "thread": 1}

    @pytest.mark.parametrize("error", [None, HostRefused(422, "thread too deep"), HostRefused(413, "too large")])
    async def test_or_walked_where_the_host_does_not_give_it(
        self, host: FakeHost, ledger: MemoryLedger, error: HostRefused | None
    ) -> None:
        host.has_thread_route = error is not None
        host.thread_error = error
        host.put(1)
        for id_ in range(2, 151):
            host.put(id_, pid=id_ - 1)
        assert await resolve(host, ledger, seen(150, 149)) == {150: 1}
        assert host.asked == {"message": 149, "thread": 1}

    async def test_a_walk_ends_where_the_ledger_takes_over(self, host: FakeHost, ledger: MemoryLedger) -> None:
        host.has_thread_route = False
        await ledger.append(CALLER, [seen(3, 2, root=1)], "push")
        for id_ in range(4, 10):
            host.put(id_, pid=id_ - 1)
        assert await resolve(host, ledger, seen(10, 9)) == {10: 1}
        assert host.asked["message"] == 6

    async def test_an_endless_line_is_cut(self, host: FakeHost, ledger: MemoryLedger) -> None:
        host.has_thread_route = False
        for id_ in range(1, MAX_STEPS + 20):
            host.put(id_, pid=id_ - 1 or None)
        top = MAX_STEPS + 19
        found = await resolve(host, ledger, seen(top + 1, top))
        assert found == {top + 1: 20}
        assert host.asked["message"] == MAX_STEPS


class TestDeadEnds:
    async def test_a_hidden_ancestor_is_the_root_where_the_host_names_it(
        self, host: FakeHost, ledger: MemoryLedger
    ) -> None:
        host.put(1)
        host.put(2, pid=1)
        host.put(3, pid=2)
        host.hidden = {1, 2}
        assert await resolve(host, ledger, seen(3, 2)) == {3: 1}

    async def test_else_the_highest_reachable_message_stands_for_it(self, host: FakeHost, ledger: MemoryLedger) -> None:
        host.has_thread_route = False
        host.put(1)
        host.put(2, pid=1)
        host.put(3, pid=2)
        host.put(4, pid=3)
        host.hidden = {1}
        assert await resolve(host, ledger, seen(4, 3)) == {4: 2}

    async def test_a_message_whose_parent_is_hidden_stands_for_itself(
        self, host: FakeHost, ledger: MemoryLedger
    ) -> None:
        host.has_thread_route = False
        host.put(1)
        host.put(2, pid=1)
        host.hidden = {1}
        assert await resolve(host, ledger, seen(2, 1)) == {2: 2}

    async def test_a_parent_not_readable_yet_is_asked_for_later(self, host: FakeHost, ledger: MemoryLedger) -> None:
        assert await resolve(host, ledger, seen(2, 1)) == {2: 0}
        host.put(1)
        assert await resolve(host, ledger, seen(2, 1)) == {2: 1}

    async def test_one_that_is_gone_for_good_ends_the_line_at_the_last_try(
        self, host: FakeHost, ledger: MemoryLedger
    ) -> None:
        host.put(1)
        host.put(2, pid=1)
        host.gone = {1}
        assert await resolve(host, ledger, seen(3, 2)) == {3: 0}
        assert await resolve(host, ledger, seen(3, 2), last_try=True) == {3: 2}


class TestTrouble:
    @pytest.mark.parametrize(
        "error",
        [
            HostUnreachable("cut"),
            HostFailed(503, "away"),
            Throttled(429, "slow down"),
            Unauthorized(401, "expired"),
            CredentialMissing("none"),
            HostMisbehaved("html"),
        ],
    )
    @pytest.mark.parametrize("route", ["message", "thread"])
    async def test_leaves_roots_open_and_raises_nothing(
        self, host: FakeHost, ledger: MemoryLedger, error: FmsgError, route: str
    ) -> None:
        for id_ in range(1, 10):
            host.put(id_, pid=id_ - 1 or None)
        host.errors[route] = [error]
        assert await resolve(host, ledger, seen(10, 9)) == {10: 0}
        assert await resolve(host, ledger, seen(10, 9)) == {10: 1}

    async def test_at_a_dead_end_too(self, host: FakeHost, ledger: MemoryLedger) -> None:
        host.put(1)
        host.hidden = {1}
        host.errors["thread"] = [HostFailed(500, "away")]
        assert await resolve(host, ledger, seen(2, 1)) == {2: 0}

    async def test_an_unreachable_host_is_not_asked_for_the_rest(self, host: FakeHost, ledger: MemoryLedger) -> None:
        host.errors["list_sent"] = [HostUnreachable("cut")]
        found = await resolve(host, ledger, *(seen(100 + id_, id_) for id_ in range(1, 10)))
        assert set(found.values()) == {0}
        assert host.asked == {"list_sent": 1}

    async def test_a_refused_one_does_not_stop_the_others(self, host: FakeHost, ledger: MemoryLedger) -> None:
        for id_ in range(1, 6):
            host.put(id_)
        host.errors["message"] = [HostFailed(500, "hiccup")]
        found = await resolve(host, ledger, *(seen(100 + id_, id_) for id_ in range(1, 6)))
        assert sorted(found.values()) == [0, 2, 3, 4, 5]

    async def test_the_parents_of_a_long_backlog_are_looked_up_in_pieces(self, host: FakeHost) -> None:
        asked: list[int] = []

        class Counting(MemoryLedger):
            async def find(self, caller: CallerKey, message_ids: Sequence[int]) -> Found:
                asked.append(len(message_ids))
                return await super().find(caller, message_ids)

        ledger = Counting(clock=lambda: 1000.0)
        await ledger.begin(CALLER, [seen(500, root=500)], Baseline())
        replies = [seen(10_000 + id_, id_) for id_ in range(1, 1001)]
        lineage = await sort_out(ledger, CALLER, replies)
        assert [one.id for one in map(lineage.apply, replies) if one.root] == [10_500]
        assert (sum(asked), max(asked)) == (1000, LOOK_UP)

    async def test_the_ledgers_own_trouble_is_raised_plain(self, host: FakeHost) -> None:
        class Failing(MemoryLedger):
            async def find(self, caller: CallerKey, message_ids: Sequence[int]) -> Found:
                if host.asked["message"]:
                    raise LedgerUnavailable("away")
                return await super().find(caller, message_ids)

        ledger = Failing(clock=lambda: 1000.0)
        await ledger.begin(CALLER, [], Baseline())
        host.put(1, pid=77)
        host.put(2, pid=78)
        with pytest.raises(LedgerUnavailable):
            await resolve(host, ledger, seen(101, 1), seen(102, 2))
