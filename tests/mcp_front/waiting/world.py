"""A host, a caller and a feed without network, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal, cast

import msgspec

from fmsg.errors import FmsgError
from fmsg.message import AddToBatch, Message, available_at_s
from fmsg.tokens import AccessToken
from fmsg.webapi import WebApi
from ledger.availability import ProbedAvailability
from ledger.catch_up import catch_up, seen_from
from ledger.memory import MemoryStore
from ledger.port import FeedReport, Member, NoLedger, Store
from ledger.values import Arrival, CallerKey, caller_key
from mcp_front.waiting.request import WaitOutcome, WaitRequest, WaitSettings
from mcp_front.waiting.wait import Waiting
from tests.ledger.fake_host import ANN as ANN
from tests.ledger.fake_host import ME as ME
from tests.ledger.fake_host import FakeHost
from tests.mcp_front.waiting.virtual import wall_s

API_URL = "https://api.here.test"
BEN = "@ben@other.test"
SOMEBODY = "@somebody@else.test"


class Host(FakeHost):
    """A fake host in virtual time: what it dates, it dates now."""

    def __init__(self, clock: Callable[[], float] = wall_s) -> None:
        super().__init__()
        self._clock = clock

    def host_time_s(self) -> float:
        return float(int(self._clock()))

    def put(  # type: ignore[override]  # its tests say more of a message, and less of its time
        self,
        message_id: int,
        *,
        from_: str = ANN,
        pid: int | None = None,
        to: tuple[str, ...] = (ME,),
        time_s: float | None = None,
        draft: bool = False,
        added: bool = False,
        no_reply: bool = False,
        reaction: str | None = None,
        terminal: bool = False,
    ) -> Message:
        """A message there is from now on (``time_s``: with this time); a draft is sent by `send`."""
        at_s = self._clock() if time_s is None else time_s
        batches = (AddToBatch(batch_id=1, add_to_from=from_, to=(ME,), time=at_s),) if added else ()
        message = Message(
            id=message_id,
            pid=pid,
            has_pid=pid is not None,
            from_=from_,
            to=(SOMEBODY,) if added else to,
            add_to=batches,
            time=None if draft else at_s - (1e6 if added else 0.0),
            no_reply=no_reply,
            reaction=reaction,
            terminal=terminal,
        )
        self.messages[message_id] = message
        return message

    def send(self, message_id: int) -> Message:  # type: ignore[override]
        """A draft is sent now."""
        sent = self.messages[message_id] = msgspec.structs.replace(self.messages[message_id], time=self._clock())
        return sent

    def add_me(self, message_id: int) -> Message:
        """The caller is added to an old message now."""
        message = self.messages[message_id]
        batch = AddToBatch(batch_id=1, add_to_from=message.from_, to=(ME,), time=self._clock())
        added = self.messages[message_id] = msgspec.structs.replace(message, add_to=(batch,))
        return added

    def root(self, message_id: int) -> int:
        """The root, as nobody needs to ask."""
        message = self.messages.get(message_id)
        return message_id if message is None or message.pid is None else self.root(message.pid)


class FakeCaller:
    """A caller whose key is good unless ``refusal`` is set."""

    def __init__(self, host: Host) -> None:
        self.refusal: FmsgError | None = None
        self.next_token = "t"
        """What the next exchange gives."""
        self._token = "t"
        self.confirmed = 0
        self._host = host

    address = ME
    api_url = API_URL
    transport: Literal["stdio", "http"] = "http"

    @property
    def key(self) -> CallerKey:
        return caller_key(API_URL, ME)

    @property
    def api(self) -> WebApi:
        return cast("WebApi", self._host)

    async def token(self) -> AccessToken:
        if self.refusal is not None:
            raise self.refusal
        return AccessToken(value=self._token, address=ME, expires_at_s=wall_s() + 3600.0)

    async def confirm(self, *, within_s: float = 60.0, ahead_s: float = 0.0) -> None:
        self.confirmed += 1
        if within_s == 0.0:
            self._token = self.next_token
        if self.refusal is not None:
            raise self.refusal
        if self._host.error is not None:
            raise self._host.error


class World:
    """One caller at one host, with a store, a process that holds waits, and a feed that may be live."""

    def __init__(self, *, store: MemoryStore | None = None, settings: WaitSettings | None = None) -> None:
        self.host = Host()
        self.store = store or MemoryStore(clock=wall_s)
        self.caller = FakeCaller(self.host)
        self.key = self.caller.key
        self.settings = settings or WaitSettings()
        self.waiting = self.another_front()
        self._beat: asyncio.Task[None] | None = None

    def another_front(self, store: Store | None = None) -> Waiting:
        """A further process on the same store."""
        return Waiting(store or self.store, settings=self.settings, clock=wall_s)

    async def begin_ledger(self) -> None:
        """The ledger begins with what the host lists."""
        await catch_up(self.caller.api, self.store.ledger, self.key, ME, source="poll")

    async def feed_goes_live(self) -> None:
        """A daemon serves the caller: ledger caught up, heartbeat there."""
        await self.store.activations.activate(
            self.key, address=ME, api_url=API_URL, token="t", token_expires_at_s=wall_s() + 3600.0
        )
        await catch_up(self.caller.api, self.store.ledger, self.key, ME, source="backfill")
        await self._report("live")
        if self._beat is None:
            await self._pulse()
            self._beat = asyncio.create_task(self._beats())

    async def feed_breaks(self) -> None:
        """The daemon is there, its socket is not."""
        await self._report("backing_off")

    async def feed_asks_for_a_token(self) -> None:
        """The host refused the feed's, and its socket is gone."""
        await self._report("asking", needs_credential=True)

    async def daemon_dies(self) -> None:
        """No heartbeat any more; the last word on the feed stays."""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None

    async def close(self) -> None:
        """Leave nothing behind."""
        await self.daemon_dies()
        if isinstance(self.store.availability, ProbedAvailability):
            await self.store.availability.aclose()

    async def push(self, message: Message, *, root: int | None = None) -> None:
        """The feed hears of a message."""
        seen = seen_from(message, address=ME, root=self.host.root(message.id) if root is None else root)
        try:
            await self.store.ledger.append(self.key, [seen], "push")
        except NoLedger:
            await catch_up(self.caller.api, self.store.ledger, self.key, ME, source="backfill")

    async def arrive(self, message_id: int, *, from_: str = ANN, pid: int | None = None, push: bool = True) -> None:
        """A message arrives and the feed hears of it at once."""
        message = self.host.put(message_id, from_=from_, pid=pid)
        if push:
            await self.push(message)

    def request(self, **arguments: object) -> WaitRequest:
        """The arguments of a call."""
        return WaitRequest(**({"timeout_s": 10.0, "settle_s": 3.0} | arguments))  # type: ignore[arg-type]

    async def wait(self, *, front: Waiting | None = None, **arguments: object) -> WaitOutcome:
        """One call."""
        return await (front or self.waiting).wait(self.caller, self.request(**arguments))

    async def _report(self, state: str, *, needs_credential: bool = False) -> None:
        report = FeedReport(state=state, daemon="daemon-1", since_s=wall_s(), needs_credential=needs_credential)
        await self.store.activations.report(self.key, report)

    async def _pulse(self) -> None:
        await self.store.fleet.beat(Member(id="daemon-1", name="daemon-1", since_s=wall_s()))

    async def _beats(self) -> None:
        while True:
            await asyncio.sleep(3.0)
            await self._pulse()


def ids(entries: tuple[Arrival, ...]) -> list[int]:
    """The ids of some entries."""
    return [entry.id for entry in entries]


def available_s(message: Message) -> float:
    """When a sent message became available to the caller."""
    at_s = available_at_s(message, ME)
    assert at_s is not None
    return at_s
