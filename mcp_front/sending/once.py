"""An idempotency key makes a repeated call return the first one's outcome: from any replica, also after a crash.

One document per key, changed by compare-and-set, holds who is at it, until when, and the draft's id, never what the
message says (a keyed hash of it tells another message from the same one):

    nothing → claimed → drafted → sent            each arrow a compare-and-set by the owner
                ↘         ↘ lease over → claimed by another call, which first settles the draft it finds

Before the send the owner renews its claim: one that was taken over meanwhile fails to, deletes its own draft and stops.
The call that took over has the former draft deleted, or finds it sent, before it makes its own. So at most one is ever
sent. A call that fails for certain frees the key.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from fmsg.errors import BadInput
from ledger.deadlines import BEST_EFFORT_S, answered_within
from ledger.port import Documents, LedgerError, Versioned
from ledger.unreadable import tell_unreadable
from ledger.values import CallerKey
from mcp_front.failures import ToolFailure
from mcp_front.sending.deliver import Delivered, Post, Steps
from mcp_front.shield import shielded

log = logging.getLogger(__name__)

KIND = "send"
"""Of the documents that hold the records."""

REMEMBERED_S = 86_400.0
"""A key is good for a day: longer than any client goes on retrying a call."""

LEASE_S = 30.0
"""How long a silent owner is waited for: three renewals may fail before another call takes over."""

RENEW_S = 8.0
"""Between renewals of a claim while attachments are uploaded."""

LOOK_S = 0.25
"""Between looks of a call that waits for another one with its key."""

PATIENCE_S = 40.0
"""How long it waits: until a dead owner's lease is over, and below the 60 s at which clients cut a call."""


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored for a key. ``time_s`` is set once the message is sent."""

    content: str
    owner: str
    lease_until_s: float
    draft_id: int | None = None
    time_s: float | None = None


class _Stored(msgspec.Struct, frozen=True):
    record: KeyRecord | None
    version: int


class Lost(Exception):
    """Another call has taken the key over while this one was silent."""


class Unreadable(ToolFailure):
    """What is stored under the key cannot be read."""

    def __init__(self) -> None:
        super().__init__(
            "outcome_unknown",
            "What is stored under this idempotency_key cannot be read, so it is not known whether a former call with "
            "it sent the message. This one sent nothing.",
            next_step="Look with list_sent. If the message is not there, send it with a new idempotency_key.",
        )


class Repeated(msgspec.Struct, frozen=True, kw_only=True):
    """The first call's outcome: the message it sent."""

    id: int
    time_s: float


def content_hash(caller: CallerKey, key: str, content: Sequence[Any]) -> str:
    """A hash of a message's content that is of no use without the idempotency key, which is stored nowhere."""
    secret = hashlib.sha256(b"\0".join((b"idempotent content", caller.encode(), key.encode()))).digest()
    return hmac.new(secret, msgspec.json.encode(content), hashlib.sha256).hexdigest()


def document_name(key: str) -> str:
    """The name that a key's record is stored under."""
    return hashlib.sha256(b"idempotency key\0" + key.encode()).hexdigest()[:40]


class Once:
    """One call with an idempotency key."""

    def __init__(
        self,
        documents: Documents,
        post: Post,
        key: str,
        content: str,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._documents = documents
        self._post = post
        self._name = document_name(key)
        self._content = content
        self._clock = clock
        self._sleep = sleep
        self._owner = secrets.token_hex(8)
        self._changing = asyncio.Lock()
        self._stored: _Stored | None = None

    async def run(self, deliver: Callable[[Steps], Awaitable[Delivered]]) -> Delivered | Repeated:
        """``deliver`` it, unless a call with the same key has. Raises what ``deliver`` raises.

        Raises `BadInput` where the key was used for another message, `ToolFailure` where another call is still at it.
        """
        former = await self._claim()
        if isinstance(former, Repeated):
            return former
        try:
            repeated = None if former is None else await self._settled(former)
            if repeated is not None:
                return repeated
            async with self._renewing():
                return await deliver(_Told(self))
        except BaseException as error:
            await shielded(self._let_go(free=_certain(error)))
            if isinstance(error, Lost):
                raise _busy() from error
            raise

    async def drafted(self, draft_id: int) -> None:
        """Note the draft. Raises `Lost`."""
        await self._change(draft_id=draft_id)

    async def renewed(self) -> None:
        """Make sure the claim is still ours. Raises `Lost`."""
        await self._change()

    async def sent(self, time_s: float) -> None:
        """Note that the message is out. What cannot be written now, the next call learns from the draft."""
        try:
            with answered_within(BEST_EFFORT_S):
                await self._change(time_s=time_s)
        except (Lost, Unreadable, LedgerError):
            log.warning("sent message not noted", extra={"action": "once_not_noted", "caller": self._post.caller})

    async def _claim(self) -> int | Repeated | None:
        """The outcome there is, or the key taken: then the draft of a former call that did not end, if any."""
        give_up_s = self._clock() + PATIENCE_S
        while True:
            stored = await self._documents.load(self._post.caller, KIND, self._name)
            known = self._read(stored)
            if known is not None and known.content != self._content:
                raise BadInput(
                    "idempotency_key: was used for another message within the last day. Use a new key for this one."
                )
            if known is not None and known.draft_id is not None and known.time_s is not None:
                return Repeated(id=known.draft_id, time_s=known.time_s)
            if known is not None and known.lease_until_s > self._clock():
                if self._clock() >= give_up_s:
                    raise _busy()
                await self._sleep(LOOK_S)
                continue
            draft_id = None if known is None else known.draft_id
            if await self._store(self._ours(draft_id), expected=stored.version):
                return draft_id

    async def _settled(self, former: int) -> Repeated | None:
        message = await self._post.settle(former)
        if message is not None and message.time is not None:
            await shielded(self.sent(message.time))
            return Repeated(id=former, time_s=message.time)
        await self._change(draft_id=None)
        return None

    def _ours(self, draft_id: int | None) -> KeyRecord:
        return KeyRecord(
            content=self._content,
            owner=self._owner,
            lease_until_s=self._clock() + LEASE_S,
            draft_id=draft_id,
        )

    async def _change(self, **changes: Any) -> None:
        """Change the record and renew the lease. Raises `Lost`."""
        async with self._changing:
            stored = self._stored or await self._load()
            record = stored.record
            if record is None or record.owner != self._owner:
                raise Lost
            record = msgspec.structs.replace(record, lease_until_s=self._clock() + LEASE_S, **changes)
            if not await self._store(record, expected=stored.version):
                await self._load()  # Raises `Unreadable` where it is not another call but damage.
                raise Lost

    def _read(self, stored: Versioned) -> KeyRecord | None:
        """What is stored. Raises `Unreadable`: taken for nothing, it would let a message be sent twice."""
        if not stored.version:
            return None
        try:
            return msgspec.json.decode(stored.data, type=KeyRecord)
        except msgspec.DecodeError:
            tell_unreadable(KIND, caller=self._post.caller)
            raise Unreadable from None

    async def _load(self) -> _Stored:
        stored = await self._documents.load(self._post.caller, KIND, self._name)
        return _Stored(self._read(stored), stored.version)

    async def _store(self, record: KeyRecord, *, expected: int) -> bool:
        """Whether nobody was faster. What is stored then is remembered: the next change need not load it."""
        self._stored = None  # Where no answer comes, it is not known.
        version = await self._documents.store(
            self._post.caller,
            KIND,
            self._name,
            msgspec.json.encode(record),
            expected=expected,
            ttl_s=REMEMBERED_S,
        )
        if version:
            self._stored = _Stored(record, version)
        return bool(version)

    @asynccontextmanager
    async def _renewing(self) -> AsyncIterator[None]:
        renewal = asyncio.create_task(self._renew())  # Ended below.
        try:
            yield
        finally:
            renewal.cancel()
            await asyncio.wait([renewal])

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                with answered_within(BEST_EFFORT_S):
                    await self._change()
            except (Lost, Unreadable):
                return
            except LedgerError:
                continue

    async def _let_go(self, *, free: bool) -> None:
        """Leave the key to the next call: free where nothing was sent for certain, else with the draft to look at."""
        try:
            async with self._changing:
                with answered_within(BEST_EFFORT_S):
                    await self._leave_key(free=free)
        except (Unreadable, LedgerError):
            log.warning("key not let go", extra={"action": "once_kept", "caller": self._post.caller})

    async def _leave_key(self, *, free: bool) -> None:
        stored = await self._load()
        record = stored.record
        if record is None or record.owner != self._owner or record.time_s is not None:
            return
        if free:
            await self._documents.delete(self._post.caller, KIND, self._name)
        else:
            await self._store(msgspec.structs.replace(record, lease_until_s=0.0), expected=stored.version)


class _Told(Steps):
    """What `Post.deliver` tells, written into the record."""

    def __init__(self, once: Once) -> None:
        self._once = once

    async def drafted(self, draft_id: int) -> None:
        await self._once.drafted(draft_id)

    async def sending(self) -> None:
        await self._once.renewed()

    async def sent(self, delivered: Delivered) -> None:
        await self._once.sent(delivered.time_s)


def _certain(error: BaseException) -> bool:
    """Whether it is certain that nothing was sent. A cancelled call may have been cut off from the answer."""
    if isinstance(error, ToolFailure):
        return error.kind != "outcome_unknown"
    return isinstance(error, Exception)


def _busy() -> ToolFailure:
    return ToolFailure(
        "refused_here",
        "Another call with this idempotency_key is still at it.",
        next_step="Make the same call again in a few seconds: it returns that call's outcome.",
    )
