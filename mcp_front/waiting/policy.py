"""Who keeps the position of a wait: the agent that passes ``after_id``, or the server for a subscription."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from ledger.deadlines import patient_for
from ledger.port import LedgerError
from mcp_front.waiting.cursor import Pursuit
from mcp_front.waiting.decide import Filters, Return
from mcp_front.waiting.list_positions import Step, save_step
from mcp_front.waiting.positions import Position, Start
from mcp_front.waiting.step_context import Stand
from mcp_front.waiting.subscriptions import Delivery

log = logging.getLogger(__name__)

NOT_RECORDED = "the server's store did not answer: after_id stays the same, and what came comes once more"
NOTE_WITHIN_S = 3.0
"""How long a ledger may take to remember a position. Without it the messages come again, so more than a moment."""


class Keeper(Protocol):
    """Keeps the position of one wait. Methods raise what the host and the store raise."""

    @property
    def reads_marks(self) -> bool:
        """Whether messages that were returned above a position are to be marked."""
        ...

    @property
    def given(self) -> frozenset[int]:
        """Ids to be passed over silently."""
        ...

    @property
    def position_id(self) -> int | None:
        """The position to name where nothing is returned; None while there is none yet."""
        ...

    @property
    def look_again_s(self) -> float | None:
        """In how many seconds to begin anew although nothing arrived."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What the agent should know about its position."""
        ...

    def filters(self, asked: Filters) -> Filters:
        """What to wait for, where the call asks for this."""
        ...

    async def start(self, stand: Stand) -> Start | Delivery | None:
        """Where to read on; or what comes again; or None: try again at once."""
        ...

    def ahead(self, stand: Stand, pursuit: Pursuit, decision: Return) -> Coroutine[Any, Any, bool] | None:
        """What `keep` would do, where it may be done before it is certain that the batch is returned, whole."""
        ...

    async def keep(
        self, stand: Stand, pursuit: Pursuit, decision: Return, *, recorded: bool | None = None
    ) -> int | None:
        """Record that a batch is returned: the position to name with it. None: another was faster, begin anew.

        ``recorded``: what came of `ahead`, where that was done.
        """
        ...

    def is_own(self, delivery: Delivery) -> bool:
        """Whether a delivery was stored for this very call, which never heard so."""
        ...

    async def keep_again(self, delivery: Delivery) -> bool:
        """Record that a delivery is given again. False: another was faster, begin anew."""
        ...

    async def behind(self, stand: Stand) -> Start | None:
        """Where that begins which is given after what comes again; None where nothing does."""
        ...

    async def close(self, stand: Stand, pursuit: Pursuit) -> int:
        """Record how far a wait came that returns nothing: the position to name."""
        ...

    def leave(self, pursuit: Pursuit | None, *, foreign: bool, away: bool = False) -> None:
        """The position has to be found anew, by id alone. ``foreign``: in another ledger than the one it is from.

        ``away``: in another store. What is known of the position in this one holds again when it is back.
        """
        ...


async def find_now(stand: Stand) -> Start:
    """Behind the newest message there is at this moment (`Positions.now`)."""
    known = await stand.ledger.state(stand.caller) if stand.transport == "websocket" else None
    caught_up = None if known is not None else await stand.desk.look(stand.positions)
    return await stand.positions.now(caught_up, elapsed_s=stand.elapsed())


class PlainKeeper:
    """The agent keeps its position. The ledger is told what it was handed, so that it is exact the next time."""

    reads_marks = True
    look_again_s: float | None = None

    def __init__(self, after_id: int | None) -> None:
        self.given = frozenset[int]()
        self._first_id = after_id
        self._lasting = None if after_id is None else Position(after_id)
        """Where to read on in the shared store."""
        self._meanwhile = self._lasting
        """Where to read on in one that stands in for it."""
        self._in_emergency = False
        self._stays = False

    @property
    def position_id(self) -> int | None:
        """See `Keeper`: what the agent passed, or where the wait began. How far it came since is not recorded."""
        return self._first_id

    @property
    def notes(self) -> tuple[str, ...]:
        """See `Keeper`."""
        return (NOT_RECORDED,) if self._stays and not self._in_emergency else ()

    def filters(self, asked: Filters) -> Filters:
        """See `Keeper`."""
        return asked

    async def start(self, stand: Stand) -> Start:
        """See `Keeper`."""
        at = self._meanwhile if stand.emergency else self._lasting
        if at is None:
            start = await find_now(stand)
            await note(stand, start.position, above=())
        else:
            start = await stand.positions.after(at)
        self._in_emergency = stand.emergency
        if stand.emergency:
            self._meanwhile = start.position
            self._lasting = self._lasting or start.position.left(foreign=True)
        else:
            self._lasting = start.position
        if self._first_id is None:
            self._first_id = start.position.id
        self.given = stand.unrecorded.behind(stand.caller, self._first_id) if stand.emergency else frozenset()
        return start

    def ahead(self, stand: Stand, pursuit: Pursuit, decision: Return) -> Coroutine[Any, Any, bool] | None:
        """See `Keeper`. Where a position was recorded that is not handed out after all, its place is as true."""
        if stand.emergency or len(decision.batch) > 1 or decision.above:
            return None
        return self._record(stand, pursuit, decision)

    async def keep(self, stand: Stand, pursuit: Pursuit, decision: Return, *, recorded: bool | None = None) -> int:
        """See `Keeper`. Where it cannot be recorded the position stays where it was (`waiting.unrecorded`)."""
        position = pursuit.reader.position_after(decision.progress.count)
        if recorded or (recorded is None and await self._record(stand, pursuit, decision)):
            return position.id
        returned = [entry.id for entry in decision.batch]
        stand.owe_marks((*returned, *_before(pursuit, decision)))
        return self._stay(stand, returned)

    async def _record(self, stand: Stand, pursuit: Pursuit, decision: Return) -> bool:
        position = pursuit.reader.position_after(decision.progress.count)
        return await note(stand, position, above=(*decision.above, *_before(pursuit, decision)))

    def is_own(self, delivery: Delivery) -> bool:
        """See `Keeper`."""
        return False

    async def keep_again(self, delivery: Delivery) -> bool:
        """Never asked: nothing is given again here."""
        return False

    async def behind(self, stand: Stand) -> Start | None:
        """See `Keeper`."""
        return None

    async def close(self, stand: Stand, pursuit: Pursuit) -> int:
        """See `Keeper`."""
        if await note(stand, pursuit.position, above=()):
            return pursuit.position.id
        return self._stay(stand, ())

    def leave(self, pursuit: Pursuit | None, *, foreign: bool, away: bool = False) -> None:
        """See `Keeper`. How far a wait came without the shared store counts for nothing there."""
        if self._in_emergency:
            at = pursuit.position if pursuit else self._meanwhile
            self._meanwhile = None if at is None else at.left(foreign=foreign)
            return
        at = pursuit.position if pursuit else self._lasting
        if at is not None:
            self._meanwhile = at.left(foreign=True)
            self._lasting = at if away else at.left(foreign=foreign)

    def _stay(self, stand: Stand, returned: Sequence[int]) -> int:
        """Where to go on from, with nothing recorded."""
        if self._first_id is None:
            raise RuntimeError("nothing was read yet")
        stand.unrecorded.add(stand.caller, self._first_id, returned)
        self._stays = True
        return self._first_id


def _before(pursuit: Pursuit, decision: Return) -> frozenset[int]:
    """What is met again behind the position, and may have been returned before."""
    count = decision.progress.count
    return pursuit.reader.met_again_from(count) | pursuit.reader.doubtful_from(count)


async def note(stand: Stand, position: Position, *, above: tuple[int, ...]) -> bool:
    """Have the ledger remember what is handed out; whether it did, and will know it again."""
    if stand.emergency:
        return False
    try:
        with patient_for(NOTE_WITHIN_S):
            if position.epoch and not position.n and position.id:
                await save_step(stand.documents, stand.caller, position.id, Step(position.epoch, position.offset))
            if position.n or above:
                await stand.ledger.note_returned(
                    stand.caller,
                    above=above,
                    position=position.id if position.n else 0,
                    epoch=position.epoch,
                    n=position.n,
                )
    except LedgerError as error:
        log.warning("a position could not be recorded: %s", error, extra={"action": "note_failed"})
        return False
    return True
