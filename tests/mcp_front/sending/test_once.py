"""One key, one message: when calls race, when a process dies half-way, when answers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
import redis

from fmsg.errors import BadInput, HostRefused
from fmsg.http import Deadlines, HostHttp
from fmsg.webapi import WebApi
from ledger.port import Documents, LedgerUnavailable, Store
from ledger.seal import SealKeys
from ledger.store import MemoryStore, RedisStore
from ledger.values import caller_key
from mcp_front.failures import ToolFailure
from mcp_front.sending.compose import Outgoing
from mcp_front.sending.deliver import LOOK_DELAYS_S, Delivered, Post, Steps
from mcp_front.sending.once import KIND, LEASE_S, Once, Repeated, content_hash, document_name
from sandbox.control import Control
from sandbox.host import SandboxHost, serve
from tests.fake_redis import FreezingTopology
from tests.key_tokens import KeyTokens
from tests.mcp_front.agents import until
from tests.mcp_front.sending.test_deliver import outgoing

ANN = "@ann@here.test"
CAT = "@cat@here.test"
SECRET_BODY = "the body that no store may hold"


class Shop:
    """A host, a store, and any number of processes that send with the same key."""

    def __init__(self, control: Control, http: HostHttp, store: MemoryStore, now_s: list[float]) -> None:
        self.control = control
        self.store: Store = store
        self._now_s = now_s
        self._tokens = KeyTokens(http, control.create_key(ANN), retry_for_s=0)
        self.api = WebApi(http, self._tokens)
        self.caller = caller_key(http.api_url, ANN)

    @classmethod
    def at(cls, other: Shop, store: Store) -> Shop:
        """A process at another store, for the same caller at the same host."""
        found = cls.__new__(cls)
        found.__dict__.update(other.__dict__, store=store)
        return found

    def now_s(self) -> float:
        """The time of every process."""
        return self._now_s[0]

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self._now_s[0] += seconds

    async def sleep(self, seconds: float) -> None:
        """Sleeping is letting time pass."""
        self.later(seconds)
        await asyncio.sleep(0)

    def post(self) -> Post:
        """The way out of one process."""
        return Post(api=self.api, deferred=self.store.deferred, caller=self.caller, clock=self.now_s, sleep=self.sleep)

    async def send(
        self,
        *,
        key: str = "key",
        body: str = SECRET_BODY,
        hook: Callable[[str], Any] | None = None,
        sleep: Any = None,
    ) -> Delivered | Repeated:
        """One call. ``hook`` is called with the name of each step before it is noted."""
        post = self.post()

        async def deliver(steps: Steps) -> Delivered:
            return await post.deliver(message(body), Hooked(steps, hook) if hook else steps)

        content = content_hash(self.caller, key, [body])
        once = Once(self.store.documents, post, key, content, clock=self.now_s, sleep=sleep or self.sleep)
        return await once.run(deliver)

    async def mails(self) -> tuple[int, int]:
        """How many sent messages and how many drafts there are."""
        page = await self.api.list_sent(limit=100)
        drafts = sum(message.is_draft for message in page.messages)
        return len(page.messages) - drafts, drafts


class Hooked:
    """Steps with something that happens before each."""

    def __init__(self, steps: Steps, hook: Callable[[str], Any]) -> None:
        self._steps = steps
        self._hook = hook

    async def drafted(self, draft_id: int) -> None:
        await self._hook("drafted")
        await self._steps.drafted(draft_id)
        await self._hook("after drafted")

    async def sending(self) -> None:
        await self._hook("sending")
        await self._steps.sending()
        await self._hook("after sending")

    async def sent(self, delivered: Delivered) -> None:
        await self._steps.sent(delivered)


def message(body: str) -> Outgoing:
    return outgoing(body=body)


def killed_at(step: str) -> Callable[[str], Any]:
    """A process that hangs for ever at a step, as one that was killed does for everybody else."""

    async def hook(name: str) -> None:
        if name == step:
            await asyncio.Event().wait()

    return hook


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    host = SandboxHost("here.test")
    now_s = [1000.0]
    async with serve(host) as url, HostHttp(url, deadlines=Deadlines(answer_s=0.5)) as http:
        host.control.create_address(CAT)
        yield Shop(host.control, http, MemoryStore(clock=lambda: now_s[0]), now_s)


async def test_the_first_call_sends_and_the_second_repeats(shop: Shop) -> None:
    first = await shop.send()
    assert isinstance(first, Delivered)
    assert await shop.send() == Repeated(id=first.id, time_s=first.time_s)
    assert await shop.mails() == (1, 0)


async def test_another_key_is_another_message_and_a_day_later_so_is_the_same(shop: Shop) -> None:
    await shop.send()
    assert isinstance(await shop.send(key="other"), Delivered)
    shop.later(86_401)
    assert isinstance(await shop.send(), Delivered)
    assert await shop.mails() == (3, 0)


async def test_the_same_key_for_another_message_is_refused(shop: Shop) -> None:
    await shop.send()
    with pytest.raises(BadInput, match="idempotency_key"):
        await shop.send(body="other")
    assert await shop.mails() == (1, 0)


@pytest.mark.parametrize("calls", [2, 5])
async def test_calls_that_race_send_one_message_and_all_return_it(shop: Shop, calls: int) -> None:
    async def patient(_seconds: float) -> None:
        await asyncio.sleep(0.001)

    outcomes = await asyncio.gather(*(shop.send(sleep=patient) for _ in range(calls)))
    assert len({outcome.id for outcome in outcomes}) == 1
    assert sum(isinstance(outcome, Delivered) for outcome in outcomes) == 1
    assert await shop.mails() == (1, 0)


@pytest.mark.parametrize("step", ["drafted", "after drafted", "sending", "after sending"])
async def test_after_a_process_died_half_way_the_next_call_sends_it_once(shop: Shop, step: str) -> None:
    reached = asyncio.Event()
    never = killed_at(step)

    async def hook(name: str) -> None:
        if name == step:
            reached.set()
        await never(name)

    victim = asyncio.create_task(shop.send(hook=hook))
    await reached.wait()
    outcome = await shop.send()
    assert isinstance(outcome, Delivered)
    assert shop.now_s() >= 1000.0 + LEASE_S, "a live owner is waited for"
    sent, drafts = await shop.mails()
    assert sent == 1
    assert drafts == (1 if step == "drafted" else 0), "a draft nobody knows of is left to the workers"
    victim.cancel()
    with pytest.raises(asyncio.CancelledError):
        await victim
    assert (await shop.mails())[0] == 1


async def test_a_process_that_was_only_paused_deletes_its_draft_and_sends_nothing(shop: Shop) -> None:
    paused, go_on = asyncio.Event(), asyncio.Event()

    async def hook(name: str) -> None:
        if name == "sending":
            paused.set()
            await go_on.wait()

    slow = asyncio.create_task(shop.send(hook=hook))
    await paused.wait()
    fast = await shop.send()
    go_on.set()
    with pytest.raises(ToolFailure, match="still at it"):
        await slow
    assert await shop.mails() == (1, 0)
    assert await shop.send() == Repeated(id=fast.id, time_s=(await shop.api.message(fast.id)).time or 0)


async def test_a_process_that_was_paused_right_before_the_send_cannot_send_a_second_one(shop: Shop) -> None:
    paused, go_on = asyncio.Event(), asyncio.Event()

    async def hook(name: str) -> None:
        if name == "after sending":
            paused.set()
            await go_on.wait()

    slow = asyncio.create_task(shop.send(hook=hook))
    await paused.wait()
    await shop.send()
    go_on.set()
    with pytest.raises(HostRefused):
        await slow
    assert await shop.mails() == (1, 0)


async def test_a_live_owner_is_waited_for_and_then_told_of(shop: Shop) -> None:
    begun = asyncio.Event()

    async def hook(name: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    owner = asyncio.create_task(shop.send(hook=hook))
    await begun.wait()

    async def renewing(seconds: float) -> None:
        shop.later(seconds)
        stored = await shop.store.documents.load(shop.caller, KIND, document_name("key"))
        data = stored.data.replace(b'"lease_until_s":1030.0', b'"lease_until_s":9999.0')
        await shop.store.documents.store(
            shop.caller, KIND, document_name("key"), data, expected=stored.version, ttl_s=86_400
        )

    with pytest.raises(ToolFailure, match="still at it"):
        await shop.send(sleep=renewing)
    assert await shop.mails() == (0, 1)
    owner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await owner


async def test_a_call_that_failed_for_certain_frees_the_key_for_a_better_message(shop: Shop) -> None:
    shop.control.fail_next("send", status=400, text="incomplete")
    with pytest.raises(HostRefused, match="incomplete"):
        await shop.send()
    assert isinstance(await shop.send(body="better"), Delivered)
    assert await shop.mails() == (1, 0)


async def test_an_unknown_outcome_keeps_the_key_and_the_next_call_learns_it(shop: Shop) -> None:
    shop.control.lose_answers("send")
    shop.control.fail_next("get", times=1 + len(LOOK_DELAYS_S), status=503)
    with pytest.raises(ToolFailure) as failure:
        await shop.send()
    assert failure.value.kind == "outcome_unknown"
    outcome = await shop.send()
    assert isinstance(outcome, Repeated)
    assert str(outcome.id) == failure.value.fields["id"]
    assert await shop.mails() == (1, 0)
    assert await shop.send() == outcome


async def test_a_call_cancelled_during_the_send_is_remembered(shop: Shop) -> None:
    shop.control.delay(0.05, route="send")
    call = asyncio.create_task(shop.send())
    await until(lambda: shop.control.core.faults.requests["send"] > 0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert isinstance(await shop.send(), Repeated)
    assert await shop.mails() == (1, 0)


async def test_a_call_cancelled_before_the_send_leaves_the_key_to_the_next(shop: Shop) -> None:
    reached = asyncio.Event()

    async def hook(name: str) -> None:
        reached.set()
        await asyncio.Event().wait()

    call = asyncio.create_task(shop.send(hook=hook))
    await reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    before_s = shop.now_s()
    assert isinstance(await shop.send(), Delivered)
    assert shop.now_s() == before_s, "nobody is waited for"
    assert await shop.mails() == (1, 0)


async def test_without_a_store_nothing_is_sent_under_a_key(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object, **__: object) -> bool:
        raise LedgerUnavailable

    monkeypatch.setattr(shop.store.documents, "store", away)
    with pytest.raises(LedgerUnavailable):
        await shop.send()
    assert await shop.mails() == (0, 0)


@pytest.mark.parametrize("fails_at", [2, 3])
async def test_a_store_that_goes_away_before_the_send_stops_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    store, count = shop.store.documents.store, 0

    async def failing(*arguments: Any, **named: Any) -> int:
        nonlocal count
        count += 1
        if count >= fails_at:
            raise LedgerUnavailable
        return await store(*arguments, **named)

    monkeypatch.setattr(shop.store.documents, "store", failing)
    with pytest.raises(LedgerUnavailable):
        await shop.send()
    assert await shop.mails() == (0, 0)


async def test_a_store_that_goes_away_after_the_send_costs_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    store, count = shop.store.documents.store, 0

    async def failing(*arguments: Any, **named: Any) -> int:
        nonlocal count
        count += 1
        if count == 4:
            raise LedgerUnavailable
        return await store(*arguments, **named)

    monkeypatch.setattr(shop.store.documents, "store", failing)
    first = await shop.send()
    again = await shop.send()
    assert isinstance(first, Delivered)
    assert again == Repeated(id=first.id, time_s=first.time_s)
    assert await shop.mails() == (1, 0)


@pytest.mark.parametrize("refused", [False, True])
async def test_a_store_that_hangs_once_it_is_not_needed_any_more_holds_up_nobody(shop: Shop, refused: bool) -> None:
    """Redis freezes right before the send: the outcome cannot be noted, or the key not let go, and the call ends."""
    topology = FreezingTopology()

    async def freeze(name: str) -> None:
        if name == "after sending":
            topology.frozen = True
            if refused:
                raise HostRefused(400, "no")

    async with RedisStore(topology, seal=SealKeys.parse(SealKeys.generate())) as store:
        frozen = Shop.at(shop, store)
        async with asyncio.timeout(60.0):
            if refused:
                with pytest.raises(HostRefused):
                    await frozen.send(hook=freeze)
            else:
                assert isinstance(await frozen.send(hook=freeze), Delivered)
        topology.frozen = False
        shop.later(LEASE_S + 1.0)
        await frozen.send()
        assert await shop.mails() == (1, 0)


async def test_the_store_holds_neither_the_key_nor_what_the_message_says(shop: Shop) -> None:
    await shop.send(key="a guessable key")
    names = await shop.store.documents.names(shop.caller, KIND)
    stored = await shop.store.documents.load(shop.caller, KIND, names[0])
    for secret in ("a guessable key", SECRET_BODY, CAT, ANN):
        assert secret.encode() not in stored.data
        assert secret not in names[0]
    assert content_hash(shop.caller, "one", ["x"]) != content_hash(shop.caller, "two", ["x"])


async def test_on_redis_two_replicas_send_one_message_and_it_holds_nothing_of_it(shop: Shop, redis_url: str) -> None:
    async def patient(_seconds: float) -> None:
        await asyncio.sleep(0.002)

    seal = SealKeys.parse(SealKeys.generate())
    async with RedisStore(redis_url, seal=seal) as one, RedisStore(redis_url, seal=seal) as other:
        replicas = [Shop.at(shop, store) for store in (one, other, one, other)]
        outcomes = await asyncio.gather(*(replica.send(sleep=patient) for replica in replicas))
        assert len({outcome.id for outcome in outcomes}) == 1
        assert sum(isinstance(outcome, Delivered) for outcome in outcomes) == 1
        assert await shop.mails() == (1, 0)
        assert await replicas[1].send() == await replicas[0].send()
    with redis.Redis.from_url(redis_url) as client:
        dump = repr([(key, _value(client, key)) for key in client.scan_iter()])
    assert document_name("key") in dump
    for secret in (SECRET_BODY, CAT, ANN, "'key'"):
        assert secret not in dump


def _value(client: Any, key: bytes) -> object:
    """What is stored under a key, whatever kind it is of."""
    read: dict[bytes, Callable[[], object]] = {
        b"string": lambda: client.get(key),
        b"hash": lambda: client.hgetall(key),
        b"set": lambda: client.smembers(key),
        b"list": lambda: client.lrange(key, 0, -1),
        b"zset": lambda: client.zrange(key, 0, -1),
        b"stream": lambda: client.xrange(key),
    }
    return read[client.type(key)]()


async def damage(shop: Shop) -> None:
    """What is stored under the one key is rubbish."""
    (name,) = await shop.store.documents.names(shop.caller, KIND)
    stored = await shop.store.documents.load(shop.caller, KIND, name)
    assert await shop.store.documents.store(
        shop.caller, KIND, name, b"\xc1 rubbish", expected=stored.version, ttl_s=1e5
    )


async def test_a_record_that_cannot_be_read_stops_the_send_and_says_so(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """Taken for none it would let the message out twice."""
    await shop.send()
    await damage(shop)
    with pytest.raises(ToolFailure, match="cannot be read") as caught:
        await shop.send()
    assert caught.value.kind == "outcome_unknown"
    assert "list_sent" in caught.value.next_step
    assert await shop.mails() == (1, 0)
    assert "unreadable" in [record.__dict__.get("action") for record in caplog.records]
    assert "rubbish" not in caplog.text
    assert isinstance(await shop.send(key="another"), Delivered)


@pytest.mark.parametrize(("step", "mails"), [("drafted", (0, 0)), ("sending", (0, 0)), ("after sending", (1, 0))])
async def test_a_record_that_is_damaged_under_a_call_leaves_no_half_message(
    shop: Shop, step: str, mails: tuple[int, int]
) -> None:
    """Before the send nothing goes out and no draft stays; after it the message is out, and only its note is not."""

    async def hook(name: str) -> None:
        if name == step:
            await damage(shop)

    if mails == (0, 0):
        with pytest.raises(ToolFailure, match="cannot be read"):
            await shop.send(hook=hook)
    else:
        assert isinstance(await shop.send(hook=hook), Delivered)
    assert await shop.mails() == mails


class Counted:
    """Documents that count what is asked of them."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._documents, name)

        async def counted(*args: Any, **named: Any) -> Any:
            self.asked.append(name)
            return await method(*args, **named)

        return counted


async def test_a_send_with_a_key_loads_its_record_once_and_stores_it_four_times(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the two of the deferred deletion of the draft these are the seven commands of a keyed send."""
    documents, deferred = Counted(shop.store.documents), Counted(cast("Any", shop.store.deferred))
    monkeypatch.setattr(shop.store, "documents", documents)
    monkeypatch.setattr(shop.store, "deferred", deferred)
    await shop.send()
    assert documents.asked == ["load", "store", "store", "store", "store"]
    assert deferred.asked == ["add", "done"]
