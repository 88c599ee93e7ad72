"""What an operator can do for one caller: compare its list now, have its feed begin anew, forget what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from fmsg.errors import FmsgError
from fmsg.http import HostHttp
from fmsg.reference import format_reference
from ledger.catch_up import catch_up
from ledger.operators import Order
from ledger.store import RedisStore
from ledger.values import CallerKey
from ops.caller.view import KINDS, words_of
from ops.doctor.host import explained
from workers.callers import Callers

PAGES = 3
"""Pages of the host's list that are compared: as deep as a worker's sweep looks."""

OBEYED_WITHIN_S = 15.0
"""How long a daemon may take: an order is heard at once, and a socket is opened within a few seconds."""

LOOK_EVERY_S = 0.1
"""Between looks whether an order was carried out."""

IDS_SHOWN = 10
"""Messages that are named one by one."""


class OrderOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an order: whether it was carried out, what came, what to do."""

    done: bool
    came: str
    do: str = ""


async def reconcile(store: RedisStore, http: HostHttp, caller: CallerKey) -> OrderOutcome:
    """Compare the caller's list with its ledger, with the token its last request left. Raises `LedgerUnavailable`."""
    standing = await Callers(store.activations, http).find(caller)
    if standing is None:
        return OrderOutcome(
            done=False,
            came="not compared: there is no token for it that still lasts",
            do="Its next request brings one, and its waits compare then.",
        )
    try:
        caught = await catch_up(
            standing.api,
            store.ledger,
            caller,
            standing.address,
            source="reconcile",
            min_pages=PAGES,
        )
    except FmsgError as error:
        trouble = explained(error)
        return OrderOutcome(done=False, came=f"not compared: {trouble.came}", do=trouble.do)
    if caught.began:
        return OrderOutcome(done=True, came=f"there was no ledger; it began with {caught.state.held} messages")
    pages = "1 page" if caught.pages == 1 else f"{caught.pages} pages"
    if not caught.new:
        return OrderOutcome(done=True, came=f"compared {pages}: nothing was missing")
    ids = [format_reference(arrival.id) for arrival in caught.new]
    more = f" and {len(ids) - IDS_SHOWN} more" if len(ids) > IDS_SHOWN else ""
    missing = "1 message was" if len(ids) == 1 else f"{len(ids)} messages were"
    there = "is" if len(ids) == 1 else "are"
    came = f"compared {pages}: {missing} missing and {there} there now: {', '.join(ids[:IDS_SHOWN])}{more}"
    return OrderOutcome(done=True, came=came, do="Waits for them were woken.")


async def reconnect(store: RedisStore, caller: CallerKey, *, within_s: float = OBEYED_WITHIN_S) -> OrderOutcome:
    """Have the caller's daemon close its feed and open it again. Raises `LedgerUnavailable`."""
    lease = (await store.fleet.holders([caller])).get(caller)
    if lease is None:
        return OrderOutcome(
            done=False, came="no daemon has it, so there is nothing to reconnect", do="See: fmsg-mcpd status."
        )
    before = await store.activations.feed(caller)
    await store.orders.give(Order(what="reconnect", caller=caller))

    async def anew() -> OrderOutcome | None:
        report = await store.activations.feed(caller)
        if report is None or (before is not None and report.since_s <= before.since_s):
            return None
        if report.live:
            return OrderOutcome(done=True, came=f"its feed began anew and is live, on daemon {report.daemon}")
        why = f" ({report.error})" if report.error else ""
        return OrderOutcome(
            done=True, came=f"its feed began anew and is {report.state}{why}", do="It goes on trying by itself."
        )

    return await _within(within_s, anew) or OrderOutcome(
        done=False,
        came=f"daemon {lease.daemon} has not done it within {within_s:g} s",
        do="Look at its log; a daemon that drains takes no orders.",
    )


async def forget(
    store: RedisStore, caller: CallerKey, *, everything: bool, within_s: float = OBEYED_WITHIN_S
) -> OrderOutcome:
    """Forget the caller's ledger and activation, and with ``everything`` its subscriptions and idempotency records too.

    Raises `LedgerUnavailable`; what was forgotten by then stays so.
    """
    await store.activations.retire(caller)
    await store.orders.give(Order(what="rest", caller=caller))

    async def free() -> OrderOutcome | None:
        lease = (await store.fleet.holders([caller])).get(caller)
        alive = {member.id for member in await store.fleet.members()}
        return None if lease is not None and lease.daemon in alive else OrderOutcome(done=True, came="")

    closed = await _within(within_s, free)
    await store.ledger.forget(caller)
    came = "its ledger and its activation are forgotten"
    if everything:
        kept = {}
        for name, kind in KINDS.items():
            names = await store.documents.names(caller, kind)
            for document in names:
                await store.documents.delete(caller, kind, document)
            kept[name] = len(names)
        came += f", {words_of(kept)}"
    if closed is None:
        do = "A daemon still runs its feed and may begin the ledger anew: look at the daemon's log, then repeat it."
        return OrderOutcome(done=False, came=came, do=do)
    return OrderOutcome(done=True, came=came, do="Its next request begins a new ledger from the host's list.")


async def _within(within_s: float, look: Callable[[], Awaitable[OrderOutcome | None]]) -> OrderOutcome | None:
    """What a look finds, within the time. None where it finds nothing."""
    try:
        async with asyncio.timeout(within_s):
            while True:
                found = await look()
                if found is not None:
                    return found
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        return None
