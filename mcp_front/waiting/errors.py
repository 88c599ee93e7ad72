"""What a wait can be refused for.

BadInput
└── WaitError                 an argument of a wait cannot be followed
    ├── UnknownPosition       ``after_id`` is no message of the caller
    ├── UnknownThread         ``thread_of`` is no message the host knows
    └── SubscriptionRefused   the name, the number or the filters of a subscription

What the host or the store cannot do now is no error of a wait: it holds until its time limit.
"""

from __future__ import annotations

from fmsg.errors import BadInput


class WaitError(BadInput):
    """An argument of a wait cannot be followed. The text names it, the reason and the next step."""


class UnknownPosition(WaitError):
    """``after_id`` names nothing the caller received or sent."""


class UnknownThread(WaitError):
    """``thread_of`` names nothing the host knows."""


class SubscriptionRefused(WaitError):
    """A subscription cannot be used this way: its name, its filters, or too many of them."""
