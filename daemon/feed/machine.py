"""What a feed does next, without any I/O. `daemon.feed.runner` carries it out."""

# The theory
#
# A message can reach a caller's ledger by two roads: the host pushes it through the event socket, or it is found in
# the host's list. The socket is fast and forgets: it has no cursor and no replay, and it can lose events while it looks
# healthy. The list forgets nothing and is slow and dear. A feed joins them so that they overlap, never leave a gap:
#
#   1. The socket is opened first, then the list is compared with the ledger until everything listed is known. What
#      became available before the socket was open is in the list; what came after is pushed. Only when both are
#      true is the feed `live`, and only then may a reader rely on it.
#   2. Whenever one of the two stops being true, the feed is not `live`: the socket closed (`backing_off`), or what the
#      ledger holds is in doubt (`backfilling`: it began anew or frames were dropped) or cannot be written or compared
#      now (`stalled`).
#   3. An open socket is never given up because something else fails. A ledger that is away, a list that answers 5xx or
#      a token that ran out leave it open: the host authorized it at the upgrade and goes on pushing. So `stalled`
#      goes back to `backfilling`, not to `connecting`.
#      What is pushed while the feed is not live is kept, and recorded when the list was compared: in a ledger the
#      order in which messages became available must not turn round: readers go on after positions in it.
#   4. Without a socket the feed waits, with full jitter, and polls the list meanwhile (`backing_off`).
#   5. Without a token that the host accepts there is nothing to do but ask for one (`asking`); it comes with the
#      caller's next request. A live feed whose token ran out stays live and asks on the side: it fetches nothing until
#      then.
#   6. A refusal of the caller itself (403, 400) is not a matter of time: the feed stops and says why (`stopped`).
#      Only a fresh credential gives reason to try again.
#   7. A caller nobody asks for, or whose feed another daemon runs now, rests (`idle`): no socket, and the ledger stays.
#
# Reconciling while live does not change the state: the feed is as live before it as after it.

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a feed is."""

    IDLE = "idle"
    """No socket and nobody who wants one. Where every feed begins, and where it rests."""
    CONNECTING = "connecting"
    """Waiting for its turn to connect, or for the host to accept the upgrade."""
    BACKFILLING = "backfilling"
    """Socket open; the list is being compared with the ledger."""
    LIVE = "live"
    """Socket open and everything listed known: pushes are trusted."""
    STALLED = "stalled"
    """Socket open, but the ledger or the list failed; another try when its time comes or a token arrives."""
    BACKING_OFF = "backing_off"
    """No socket; another attempt after a delay, and the list polled meanwhile."""
    ASKING = "asking"
    """No socket and no token the host accepts."""
    STOPPED = "stopped"
    """The host refuses this caller."""


class Signal(StrEnum):
    """What can happen to a feed."""

    WAKE = "wake"
    """Somebody asks for the caller."""
    OPENED = "opened"
    """The host accepted the upgrade."""
    CAUGHT_UP = "caught_up"
    """Everything listed is in the ledger."""
    BEHIND = "behind"
    """The ledger began anew or lost its entries, or frames had to be dropped."""
    FAILED = "failed"
    """Connecting, listing or writing failed in a way that passes with time."""
    UNAUTHORIZED = "unauthorized"
    """The token is missing, expired or refused."""
    CREDENTIAL = "credential"
    """A new token is there."""
    CLOSED = "closed"
    """The open socket is gone."""
    DUE = "due"
    """The delay before another attempt is over."""
    REFUSED = "refused"
    """The host refuses the caller."""
    REST = "rest"
    """Nobody asks any more, or another daemon has the caller."""


class ImpossibleSignal(Exception):
    """A signal that cannot happen in this state: the code around the machine broke its rules."""

    def __init__(self, state: State, signal: Signal) -> None:
        super().__init__(f"A feed that is {state} cannot meet {signal}: see the table in daemon/feed/machine.py.")
        self.state = state
        self.signal = signal


TRANSITIONS: dict[State, dict[Signal, State]] = {
    State.IDLE: {
        Signal.WAKE: State.CONNECTING,
    },
    State.CONNECTING: {
        Signal.OPENED: State.BACKFILLING,
        Signal.FAILED: State.BACKING_OFF,
        Signal.UNAUTHORIZED: State.ASKING,
        Signal.REFUSED: State.STOPPED,
        Signal.REST: State.IDLE,
    },
    State.BACKFILLING: {
        Signal.CAUGHT_UP: State.LIVE,
        Signal.BEHIND: State.BACKFILLING,
        Signal.FAILED: State.STALLED,
        Signal.UNAUTHORIZED: State.STALLED,
        Signal.CLOSED: State.BACKING_OFF,
        Signal.REFUSED: State.STOPPED,
        Signal.REST: State.IDLE,
    },
    State.LIVE: {
        Signal.BEHIND: State.BACKFILLING,
        Signal.FAILED: State.STALLED,
        Signal.UNAUTHORIZED: State.LIVE,
        Signal.CLOSED: State.BACKING_OFF,
        Signal.REFUSED: State.STOPPED,
        Signal.REST: State.IDLE,
    },
    State.STALLED: {
        Signal.DUE: State.BACKFILLING,
        Signal.CREDENTIAL: State.BACKFILLING,
        Signal.BEHIND: State.STALLED,
        Signal.FAILED: State.STALLED,
        Signal.CLOSED: State.BACKING_OFF,
        Signal.REST: State.IDLE,
    },
    State.BACKING_OFF: {
        Signal.DUE: State.CONNECTING,
        Signal.UNAUTHORIZED: State.ASKING,
        Signal.REFUSED: State.STOPPED,
        Signal.REST: State.IDLE,
    },
    State.ASKING: {
        Signal.CREDENTIAL: State.CONNECTING,
        Signal.REST: State.IDLE,
    },
    State.STOPPED: {
        Signal.CREDENTIAL: State.CONNECTING,
        Signal.REST: State.IDLE,
    },
}
"""What each signal leads to. A pair that is not here raises `ImpossibleSignal`."""

WITH_SOCKET = frozenset({State.BACKFILLING, State.LIVE, State.STALLED})
"""The states in which the socket is open."""

PASSING = frozenset({State.CONNECTING, State.BACKFILLING})
"""States a feed only passes through: worth a report only where the last one said ``live``."""


def after(state: State, signal: Signal) -> State:
    """The state that follows. Raises `ImpossibleSignal`."""
    try:
        return TRANSITIONS[state][signal]
    except KeyError:
        raise ImpossibleSignal(state, signal) from None
