"""What one wait stands on at the moment: a store, its seat at the caller's desk there, its ear at the doorbell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from fmsg.address import fold
from ledger.port import Documents, Ledger
from ledger.values import CallerKey, Slice
from mcp_front.caller import Caller
from mcp_front.waiting.caller_state import Desk
from mcp_front.waiting.decide import Filters
from mcp_front.waiting.grounds import Ground, Grounds
from mcp_front.waiting.positions import Positions
from mcp_front.waiting.request import Transport, WaitRequest, WaitSettings
from mcp_front.waiting.resets import Unrest
from mcp_front.waiting.threads import root_named_by
from mcp_front.waiting.trouble import PASSING
from mcp_front.waiting.unrecorded import Unrecorded


@dataclass(frozen=True, slots=True)
class Stand:
    """What a step of a wait works with."""

    caller: CallerKey
    ledger: Ledger
    documents: Documents
    positions: Positions
    desk: Desk
    transport: Transport
    filters: Filters
    elapsed: Callable[[], float]
    """Seconds since the call began."""
    emergency: bool
    """Whether the shared store is away and this is a store of this process alone."""
    saw: Callable[[Slice], None] | None
    """Is told of everything that is read of the shared ledger."""
    owe_marks: Callable[[Iterable[int]], None]
    """Has the shared store told of returned messages once it is back."""
    unrecorded: Unrecorded
    """What this process returned without a ledger that remembers the position behind it."""


class Footing:
    """Takes and changes the stand of one wait.

    ``wake`` is called when something may have changed; ``clock`` is the wall clock.
    """

    def __init__(
        self,
        caller: Caller,
        request: WaitRequest,
        grounds: Grounds,
        settings: WaitSettings,
        *,
        wake: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._caller = caller
        self._request = request
        self._grounds = grounds
        self._settings = settings
        self._wake = wake
        self._clock = clock
        self._ground: Ground | None = None
        self._unlisten: Callable[[], None] | None = None
        self._positions: Positions | None = None
        self._filters: Filters | None = None

    @property
    def store_is_away(self) -> bool:
        """Whether the shared store does not answer."""
        return self._grounds.away

    def store_failed(self) -> None:
        """The store did not answer."""
        self._grounds.failed()

    async def choose(self) -> bool:
        """Choose the store for the next step; whether it is another one than before, so that positions do not fit."""
        ground = self._grounds.shared
        if not self._request.subscription:
            ground = await self._grounds.current(self._caller.key)
        if ground is self._ground:
            return False
        had_one = self._ground is not None
        self.release()
        self._ground = ground
        ground.desks.at(self._caller.key).join(self._wake)
        self._unlisten = ground.store.doorbell.listen(self._caller.key, self._wake)
        self._positions = Positions(
            self._caller.api,
            ground.store.ledger,
            ground.store.documents,
            self._caller.key,
            self._caller.address,
            seed_limit=self._settings.seed_limit,
            unrest=self._unrest,
            recent=self._grounds.shared.desks.at(self._caller.key).recent,
            emergency=ground.emergency,
        )
        self._positions.look_together = partial(ground.desks.at(self._caller.key).look, self._positions)
        return had_one

    def disturbed(self) -> None:
        """The ledger is not the one it was."""
        if self._ground is not None and not self._ground.emergency:
            self._ground.desks.at(self._caller.key).changed(now_s=self._clock())

    def saw_epoch(self, epoch: str) -> None:
        """The ledger's life as it was read just now."""
        if self._ground is not None and not self._ground.emergency:
            self._ground.desks.at(self._caller.key).saw_epoch(epoch, now_s=self._clock())

    async def _unrest(self, epoch: str) -> Unrest | None:
        if self._ground is None or self._ground.emergency:
            return None
        self.saw_epoch(epoch)
        return await self._ground.desks.at(self._caller.key).known_unrest(now_s=self._clock())

    async def stand(self, *, elapsed: Callable[[], float]) -> Stand:
        """Mark the caller active, see how its feed does, resolve the filters. Raises as the host and the store do."""
        if self._ground is None or self._positions is None:
            raise RuntimeError("no store was chosen")
        store, desk = self._ground.store, self._ground.desks.at(self._caller.key)
        if self._ground.emergency:
            self._grounds.shared.desks.at(self._caller.key).away_since(self._grounds.away_since_s)
        else:
            await desk.store_unrest()
            await desk.pay_marks()
            # Without a token now the feed goes on with the one it has, and the next step tries again.
            with suppress(*PASSING):
                await desk.activate(self._caller)
        transport = await desk.transport()
        if self._filters is None:
            self._filters = await self._resolve_filters(store.ledger)
        return Stand(
            caller=self._caller.key,
            ledger=store.ledger,
            documents=store.documents,
            positions=self._positions,
            desk=desk,
            transport=transport,
            filters=self._filters,
            elapsed=elapsed,
            emergency=self._ground.emergency,
            saw=None if self._ground.emergency else desk.recent.saw,
            owe_marks=self._grounds.shared.desks.at(self._caller.key).owe_marks,
            unrecorded=self._grounds.unrecorded,
        )

    async def _resolve_filters(self, ledger: Ledger) -> Filters:
        root = None
        if self._request.thread_of is not None:
            root = await root_named_by(self._caller.api, ledger, self._caller.key, self._request.thread_of)
        return Filters(
            address=fold(self._caller.address),
            from_=None if self._request.from_ is None else fold(self._request.from_),
            thread_root=root,
        )

    def release(self) -> None:
        """Leave the desk and the doorbell."""
        if self._ground is not None:
            self._ground.desks.at(self._caller.key).leave(self._wake)
        if self._unlisten is not None:
            self._unlisten()
        if self._positions is not None:
            self._positions.look_together = None  # it refers to the positions themselves
        self._ground = self._unlisten = self._positions = None
