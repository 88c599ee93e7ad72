"""The end of a caller's ledger as its daemon holds it: what a store that was emptied or failed over is given back.

After a flush or a failover a ledger that begins anew has other stream ids, so that readers with a position get much
again. Written back under the same ids, it goes on as if nothing had been.
"""

from __future__ import annotations

import msgspec

from ledger.catch_up import read_image
from ledger.port import Ledger
from ledger.values import Appended, CallerKey, Head, Image, LedgerState

READ_AT_ONCE = 200
"""Entries of other writers read in one step; of more, an image holds only the newest anyway."""


class LedgerCopy:
    """Holds the image of one caller's ledger, kept up to date with what is recorded."""

    __slots__ = ("_caller", "_ledger", "image")

    def __init__(self, ledger: Ledger, caller: CallerKey) -> None:
        self.image: Image | None = None
        """None until the ledger was compared once."""
        self._ledger = ledger
        self._caller = caller

    def lacking(self, head: Head | None) -> bool:
        """Whether a ledger that ends there (None: there is none) lacks what the image holds."""
        if self.image is None:
            return False
        ours = self.image.state.head
        return head is None or (head.epoch == ours.epoch and head.last < ours.last)

    async def restore(self) -> None:
        """Write back what the store lost. Raises `LedgerUnavailable`."""
        if self.image is not None:
            await self.follow(await self._ledger.restore(self._caller, self.image))

    async def appended(self, appended: Appended) -> None:
        """We appended something. Raises as `follow`."""
        if self.image is None:
            return
        grown = self.image.grown(appended)
        if grown is not None:
            self.image = grown
        else:
            await self.follow(appended.state)

    async def follow(self, state: LedgerState) -> None:
        """Take over what the ledger holds by now. Raises `NoLedger`, `StaleEpoch` and `LedgerUnavailable`."""
        image = self.image
        if image is None or image.state.epoch != state.epoch:
            self.image = await read_image(self._ledger, self._caller)
            return
        while image.state.last < state.last:
            tail = await self._ledger.read(self._caller, image.state.last, READ_AT_ONCE, since=image.state.head)
            if self.image is not image:
                return  # another writer of this process took it over meanwhile
            if not tail.entries:
                break
            read_to = msgspec.structs.replace(tail.state, last=tail.entries[-1].at)
            self.image = image = image.joined(tail.entries, read_to)
            state = tail.state
        if image.state.last == state.last:
            self.image = image.joined((), state)
