"""Every state against every signal, and the promises the table makes as a whole."""

from __future__ import annotations

import itertools

import pytest

from daemon.feed.machine import TRANSITIONS, WITH_SOCKET, ImpossibleSignal, Signal, State, after

ALLOWED = """
idle         wake          connecting
connecting   opened        backfilling
connecting   failed        backing_off
connecting   unauthorized  asking
connecting   refused       stopped
connecting   rest          idle
backfilling  caught_up     live
backfilling  behind        backfilling
backfilling  failed        stalled
backfilling  unauthorized  stalled
backfilling  closed        backing_off
backfilling  refused       stopped
backfilling  rest          idle
live         behind        backfilling
live         failed        stalled
live         unauthorized  live
live         closed        backing_off
live         refused       stopped
live         rest          idle
stalled      due           backfilling
stalled      credential    backfilling
stalled      behind        stalled
stalled      failed        stalled
stalled      closed        backing_off
stalled      rest          idle
backing_off  due           connecting
backing_off  unauthorized  asking
backing_off  refused       stopped
backing_off  rest          idle
asking       credential    connecting
asking       rest          idle
stopped      credential    connecting
stopped      rest          idle
"""

EXPECTED = {
    (State(state), Signal(signal)): State(following)
    for state, signal, following in (line.split() for line in ALLOWED.split("\n") if line)
}


@pytest.mark.parametrize(("state", "signal"), list(itertools.product(State, Signal)))
def test_a_signal_leads_where_the_rules_say_or_raises(state: State, signal: Signal) -> None:
    expected = EXPECTED.get((state, signal))
    if expected is not None:
        assert after(state, signal) is expected
    else:
        with pytest.raises(ImpossibleSignal, match=f"{state} cannot meet {signal}") as caught:
            after(state, signal)
        assert (caught.value.state, caught.value.signal) == (state, signal)


def test_a_feed_is_live_only_after_a_backfill_behind_an_open_socket() -> None:
    into_live = {
        (state, signal)
        for state, signals in TRANSITIONS.items()
        for signal, following in signals.items()
        if following is State.LIVE and state is not State.LIVE
    }
    assert into_live == {(State.BACKFILLING, Signal.CAUGHT_UP)}
    into_backfilling = {state for state, signals in TRANSITIONS.items() if State.BACKFILLING in signals.values()}
    assert into_backfilling - WITH_SOCKET == {State.CONNECTING}


def test_an_open_socket_is_given_up_only_when_it_closed_or_nobody_may_have_it() -> None:
    for state in WITH_SOCKET:
        for signal, following in TRANSITIONS[state].items():
            if following not in WITH_SOCKET:
                assert signal in {Signal.CLOSED, Signal.REST, Signal.REFUSED}


def test_every_state_can_rest_and_every_state_can_be_reached() -> None:
    assert all(TRANSITIONS[state].get(Signal.REST) is State.IDLE for state in State if state is not State.IDLE)
    reached = {State.IDLE}
    for _ in State:
        reached |= {following for state in reached for following in TRANSITIONS[state].values()}
    assert reached == set(State)
