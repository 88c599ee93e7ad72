"""What a delivery object means (FMSG-003, "Delivery codes seen in response_code")."""

from __future__ import annotations

from typing import Literal

import msgspec

from fmsg.message import AddToBatch, Delivery, Message

Status = Literal["delivered", "pending", "failed"]


class Code(msgspec.Struct, frozen=True):
    """The name of a response code and what the sender can do about it."""

    name: str
    advice: str


CODES: dict[int, Code] = {
    -2: Code("outcome unknown here", "another host delivers to this recipient; nothing to do"),
    -1: Code(
        "recipient's host not reached",
        "your host tried and got no answer; it keeps trying. If this stays for some minutes, check the domain",
    ),
    1: Code("invalid", "the recipient's host found the message malformed; report it to your host's operator"),
    2: Code("unsupported version", "the recipient's host speaks another protocol version"),
    3: Code("undisclosed", "the recipient's host gave no reason"),
    4: Code("too big", "send less, or a smaller attachment"),
    5: Code("insufficient resources", "the recipient's host has no room now; send again later"),
    6: Code(
        "parent not found",
        "the recipient's host does not know the message replied to. If the recipient was added just now, the notice of "
        "it may still be on its way: send again in a minute. Otherwise start a new thread",
    ),
    7: Code("too old", "the message took too long to arrive; send a new one"),
    8: Code("future time", "a host's clock is wrong; report it to your host's operator"),
    9: Code("time travel", "the reply is dated before its parent; report it to your host's operator"),
    10: Code("duplicate", "the recipient's host has it already; nothing to do"),
    100: Code("user unknown", "check the address"),
    101: Code("user full", "the recipient has no room; try again later"),
    102: Code("user not accepting", "the recipient does not accept messages now"),
    103: Code("user duplicate", "the recipient has it already; nothing to do"),
    105: Code("user undisclosed", "the recipient's host gave no reason"),
}
"""Known response codes. Unknown ones are reported by number."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery to one recipient. ``via`` is ``to`` or ``add_to``; ``time`` is the host's RFC 3339 string."""

    addr: str
    status: Status
    time: str | None
    code: int | None
    via: Literal["to", "add_to"]


def status_of(delivery: Delivery) -> Status:
    """Delivered, pending or failed; a ``time_delivered`` always wins. 0 is the absence of a code."""
    if delivery.time_delivered is not None:
        return "delivered"
    code = delivery.response_code
    return "pending" if code is None or code <= 0 or code == 200 else "failed"


def outcomes(message: Message) -> tuple[Outcome, ...]:
    """The delivery to every recipient, added ones included; recipients without a delivery object are pending."""
    found = list(_of(message.to, message.to_delivery, "to"))
    for batch in message.add_to or ():
        found.extend(_batch(batch))
    return tuple(found)


def _batch(batch: AddToBatch) -> tuple[Outcome, ...]:
    return tuple(_of(batch.to, batch.to_delivery, "add_to"))


def _of(
    to: tuple[str, ...] | None, deliveries: tuple[Delivery, ...] | None, via: Literal["to", "add_to"]
) -> list[Outcome]:
    known = {delivery.addr.lower(): delivery for delivery in deliveries or ()}
    result = []
    for address in to or tuple(delivery.addr for delivery in deliveries or ()):
        delivery = known.get(address.lower(), Delivery(addr=address))
        result.append(
            Outcome(
                addr=address.lower(),
                status=status_of(delivery),
                time=delivery.time_delivered,
                code=delivery.response_code,
                via=via,
            )
        )
    return result
