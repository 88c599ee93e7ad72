"""What a wait can be refused for.

BadInput
└── WaitError                 an argument of a wait cannot be followed
    ├── UnknownPosition       ``after_id`` is no message of the caller
    ├── UnknownThread         ``thread_of`` is no message the host knows
    └── SubscriptionRefused   the name, the number or the filters of a subscription
LedgerUnavailable
└── SubscriptionAway          a subscription's position cannot be read now

What the host or the store cannot do now is no error of a wait: it holds until its time limit, and then says so beside
the position to go on from. Only a subscription whose position nobody knows but the store has none to name.
"""

from __future__ import annotations

from fmsg.errors import BadInput
from ledger.port import LedgerUnavailable


class WaitError(BadInput):
    """An argument of a wait cannot be followed. The text names it, the reason and the next step."""


class UnknownPosition(WaitError):
    """``after_id`` names nothing the caller received or sent."""


class UnknownThread(WaitError):
    """``thread_of`` names nothing the host knows."""


class SubscriptionRefused(WaitError):
    """A subscription cannot be used this way: its name, its filters, or too many of them."""


class SubscriptionAway(LedgerUnavailable):
    """The store that keeps a subscription did not answer within the time limit. The text names the subscription."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The server's store, which keeps the position of subscription {name}, did not answer within the time "
            "limit. Nothing is lost: no message was passed over."
        )
