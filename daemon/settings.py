"""What an operator can set of a daemon. The defaults are meant for 10,000 callers to a daemon."""

from __future__ import annotations

import msgspec


class DaemonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Paces, caps and delays of a daemon; times in seconds."""

    heartbeat_s: float = 2.5
    """Between heartbeats. A quarter of ``heartbeat_ttl_s``: three may fail before others take our callers."""

    heartbeat_ttl_s: float = 10.0
    """How long a heartbeat holds: the store's `LedgerLimits.heartbeat_ttl_s`. After a longer silence of our own we look
    at our leases before we say anything about a feed."""

    look_s: float = 1.0
    """Between looks at the heartbeats of the others, while there are others. This and the TTL are how long the callers
    of a killed daemon wait for the next one."""

    scan_s: float = 10.0
    """Between readings of the list of active callers, which make up for activations whose hint was lost."""

    idle_after_s: float = 1800.0
    """A caller that nobody asked for in this long has its socket closed; the ledger stays. Longer than an agent's pause
    between two tasks, or every task begins with a reconnect."""

    missing_grace_s: float = 60.0
    """How long a feed outlives its activation. A flushed store forgets those, and requests bring them back."""

    max_connecting: int = 64
    """Sockets being opened at the same time by one daemon."""

    connects_per_s: float = 100.0
    """Sockets opened per second at the host, by all daemons of the fleet together."""

    max_listing: int = 32
    """Comparisons of the host's list with a ledger at the same time, by one daemon."""

    lists_per_s: float = 200.0
    """Reconciliations started per second by one daemon. When more would be due, they are spread further apart."""

    reconcile_s: float = 60.0
    """Between comparisons of a busy caller's list with its ledger while the socket is healthy. A lost event waits that
    long at worst."""

    reconcile_quiet_s: float = 300.0
    """As ``reconcile_s``, for a caller to whom nothing came for a while: the interval grows up to this."""

    reconcile_reconnected_s: float = 10.0
    """The first reconciliation after the socket opened: what made the host drop it may still be going on."""

    alarm_s: float = 120.0
    """How long a lost event keeps all feeds alarmed. One listener of the host serves all sockets: what it lost for
    one it lost for others."""

    reconcile_alarmed_s: float = 15.0
    """As ``reconcile_s``, while alarmed."""

    lost_grace_s: float = 5.0
    """A message found in the list counts as lost by the socket if it is not pushed within this time: list and push
    overtake each other."""

    backoff_base_s: float = 1.0
    """The first delay after a failure is up to this long."""

    backoff_cap_s: float = 60.0
    """No delay of our own choice is longer. An outage of an hour ends for everybody within a minute."""

    poll_s: float = 15.0
    """Between looks at the list while there is no socket."""

    ask_s: float = 15.0
    """Between looks for a new token while a feed needs one: makes up for a lost hint."""

    stopped_s: float = 60.0
    """A feed that the host refused does not try again sooner, even with a new token."""

    reconnect_pages: int = 2
    """List pages compared at least after a time without a socket: a draft sent late may lie below what is known."""

    pending_limit: int = 128
    """Frames kept per caller that are not yet in the ledger. More are dropped, and the list is compared again."""

    handover_round_s: float = 0.5
    """Between looks at what became of callers that are to go to another daemon."""

    pull_settle_s: float = 5.0
    """A caller is taken from a healthy daemon only if that was the plan for so long: members and callers come and go in
    bursts, and each view of them is a little different."""

    pull_report_s: float = 5.0
    """How long a feed that was taken from a healthy daemon may stay silent before it reports that it is not live."""

    drain_s: float = 25.0
    """How long a stopping daemon waits for others to take its callers, which they do at ``connects_per_s``. Those left
    then have no socket until the others open theirs. Service managers that are told nothing kill after 30 s or so."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises `ValueError` naming the setting."""
        if self.heartbeat_s * 2 > self.heartbeat_ttl_s:
            raise ValueError(
                f"heartbeat_s: {self.heartbeat_s} is more than half of heartbeat_ttl_s ({self.heartbeat_ttl_s}), "
                "so that one late heartbeat would move every caller. Set it to a quarter of it or less."
            )
        for name in ("max_connecting", "max_listing", "connects_per_s", "lists_per_s", "pending_limit", "scan_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: {getattr(self, name)} is not above 0. Set a positive number.")
