"""What counts as news to a ledger, whatever the clocks say (`ledger.memory.CallerLedger`)."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from ledger.memory import CallerLedger
from ledger.values import Baseline, Seen

MAX_ENTRIES = 4
BEGAN_S = 1_000_000.0
YEAR_S = 365 * 86_400.0


def seen(message_id: int, sent_at_s: float) -> Seen:
    return Seen(id=message_id, pid=None, root=message_id, from_="@bob@b.test", sent_at_s=sent_at_s)


class Event(NamedTuple):
    """Something happens ``after_s`` later. ``skew_s``: how far the sender's clock is ahead of the ledger's."""

    what: str
    after_s: float
    skew_s: float
    pushed: bool


EVENTS = st.lists(
    st.builds(
        Event,
        what=st.sampled_from(["remote", "remote", "remote", "draft", "send", "add", "list", "compare"]),
        after_s=st.sampled_from([0.0, 0.001, 1.0, 60.0, 3600.0]),
        skew_s=st.one_of(st.sampled_from([0.0, 0.0, 600.0, -600.0, YEAR_S, 80 * YEAR_S]), st.floats(-1e5, 1e5)),
        pushed=st.booleans(),
    ),
    max_size=80,
)


class Scenario:
    """A host whose clock may be off, senders whose clocks are, and a ledger that hears of some messages at once."""

    def __init__(self, *, host_skew_s: float, max_gone: int) -> None:
        self.now_s = BEGAN_S
        self.host_skew_s = host_skew_s
        self.max_gone = max_gone
        self.listed: dict[int, Seen] = {}
        self.drafts: list[int] = []
        self.next_id = 100
        self.page: set[int] = set()
        """What the walk under way found listed."""
        self.verified_id = 99
        """The highest id that walks which ended had begun with."""
        self.recorded: set[int] = set()
        self.began = Baseline(newest_id=99, time_s=BEGAN_S + host_skew_s)
        self.ledger = CallerLedger("epoch", self.began)
        self.ledger.begin((), int(BEGAN_S * 1000))

    @property
    def host_s(self) -> float:
        return self.now_s + self.host_skew_s

    def happens(self, event: Event) -> None:
        self.now_s += event.after_s
        if event.what == "list":
            self.page = set(self.listed)
        elif event.what == "compare":
            self.compare()
        elif event.what == "draft":
            self.drafts.append(self._id())
        elif event.what == "send":
            if self.drafts:
                self._available(self.drafts.pop(0), self.host_s, pushed=event.pushed)
        elif event.what == "add":  # to a message that is older than the ledger, by somebody else's clock
            self._available(self.next_id % 90 + 1, self.now_s + event.skew_s, pushed=event.pushed)
        else:
            self._available(self._id(), self.now_s + event.skew_s, pushed=event.pushed)

    def news(self) -> set[int]:
        return {
            id_
            for id_, one in self.listed.items()
            if not self.ledger.settled.covers(one) and not self.ledger.knows(id_)
        }

    def compare(self) -> None:
        """End a walk over the whole list; what became available since it was listed is not its matter."""
        for id_ in sorted(self.news() & self.page):
            self._record(id_)
        self.verified_id = max(self.page | {self.verified_id})
        self.ledger.verify(self.verified_id, self.max_gone)
        self.ledger.trim(MAX_ENTRIES, self.max_gone)
        assert not self.news() & self.page

    def _id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def _available(self, message_id: int, sent_at_s: float, *, pushed: bool) -> None:
        if message_id in self.listed:
            return
        self.listed[message_id] = seen(message_id, sent_at_s)
        if pushed:
            self._record(message_id)
            self.ledger.trim(MAX_ENTRIES, self.max_gone)

    def _record(self, message_id: int) -> None:
        self.recorded.add(message_id)
        new = self.ledger.append([self.listed[message_id]], "push", int(self.now_s * 1000), only_news=False)
        assert [one.id for one in new] == [message_id]


@given(EVENTS, st.sampled_from([0.0, 2.0, -2.0, 3600.0, -3600.0]))
def test_whatever_the_clocks_nothing_is_recorded_twice_and_nothing_missing_is_hidden(
    events: list[Event], host_skew_s: float
) -> None:
    scenario = Scenario(host_skew_s=host_skew_s, max_gone=1000)
    for event in events:
        scenario.happens(event)
        horizon_s = max(
            scenario.ledger.entries[0].arrived_at_s if scenario.ledger.entries else 0.0, scenario.began.time_s
        )
        missing = set(scenario.listed) - scenario.recorded
        surely = {id_ for id_ in missing if id_ > scenario.verified_id or scenario.listed[id_].sent_at_s > horizon_s}
        assert surely <= scenario.news()
        assert scenario.ledger.settled.time_s <= horizon_s, "no clock but the ledger's moves what is old"
        assert not scenario.news() & scenario.recorded


@given(EVENTS, st.integers(0, 6))
def test_however_little_is_remembered_nothing_is_recorded_twice(events: list[Event], max_gone: int) -> None:
    scenario = Scenario(host_skew_s=0.0, max_gone=max_gone)
    for event in events:
        scenario.happens(event)
        assert len(scenario.ledger.gone) <= max_gone
        assert not scenario.news() & scenario.recorded
        assert len(scenario.ledger.entries) <= MAX_ENTRIES


def test_of_those_ahead_of_time_the_least_are_given_up_first() -> None:
    scenario = Scenario(host_skew_s=0.0, max_gone=2)
    for skew_s in (600.0, 660.0, 80 * YEAR_S, 0.0, 0.0, 0.0, 0.0):
        scenario.happens(Event("remote", 0.0, skew_s, pushed=True))
    assert set(scenario.ledger.gone) == {102}
    assert scenario.ledger.settled == Baseline(newest_id=101, time_s=BEGAN_S + 660.0)


def test_what_was_trimmed_above_the_watermark_stays_remembered_when_it_moves_below_it() -> None:
    """Something else may have been missed since the list was read, between the watermark and what was trimmed."""
    scenario = Scenario(host_skew_s=0.0, max_gone=1000)
    scenario.happens(Event("remote", 1.0, 0.0, pushed=True))
    scenario.happens(Event("list", 0.0, 0.0, pushed=False))
    scenario.happens(Event("remote", 1.0, 0.0, pushed=False))
    for _ in range(6):
        scenario.happens(Event("remote", 1.0, 0.0, pushed=True))
    assert set(scenario.ledger.gone) == {100, 102, 103}
    scenario.happens(Event("compare", 0.0, 0.0, pushed=False))
    assert (scenario.ledger.verified_id, set(scenario.ledger.gone), scenario.news()) == (100, {102, 103}, {101})
