"""Orders to a daemon that runs, on a real Redis and a sandbox host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from daemon.daemon import Daemon
from fmsg.http import HostHttp
from ledger.operators import Order
from ledger.port import FeedReport, Member
from ledger.store import RedisStore
from ledger.values import Baseline, CallerKey, caller_key
from ops.caller.orders import IDS_SHOWN, forget, reconcile, reconnect
from ops.caller.view import KINDS
from sandbox.host import SandboxHost, serve
from tests.daemon.world import quick
from tests.key_tokens import KeyTokens

ANN = "@ann@here.test"


class Place:
    """A host with somebody on it, and the store of a fleet."""

    def __init__(self, host: SandboxHost, http: HostHttp, store: RedisStore) -> None:
        self.host = host
        self.http = http
        self.store = store
        self.key: CallerKey = caller_key(http.api_url, ANN)
        self.api_key = host.control.create_key(ANN)

    async def ask(self, *, token: bool = True) -> None:
        """What a request does."""
        left = await KeyTokens(self.http, self.api_key).token() if token else None
        await self.store.activations.activate(
            self.key,
            address=ANN,
            api_url=self.http.api_url,
            token=None if left is None else left.value,
            token_expires_at_s=0.0 if left is None else left.expires_at_s,
        )

    def deliver(self, count: int) -> None:
        """Messages arrive."""
        for _ in range(count):
            self.host.control.deliver("@bob@far.test", [ANN])

    async def until_state(self, state: str) -> FeedReport:
        """Wait until its feed reports a state."""
        async with asyncio.timeout(20):
            while True:
                report = await self.store.activations.feed(self.key)
                if report is not None and report.state == state:
                    return report

    @asynccontextmanager
    async def daemon(self) -> AsyncIterator[Daemon]:
        """A daemon that obeys."""
        daemon = Daemon(self.store, self.http, name="daemon", settings=quick(), orders=self.store.orders)
        running = asyncio.create_task(daemon.run(asyncio.Event()))  # ended below
        try:
            await daemon.ready.wait()
            yield daemon
        finally:
            running.cancel()
            await asyncio.wait([running])


@pytest.fixture
async def place(redis_store: RedisStore) -> AsyncIterator[Place]:
    await redis_store.notifications.connected.wait()
    host = SandboxHost("here.test")
    async with serve(host) as url, HostHttp(url) as http:
        yield Place(host, http, redis_store)


class TestReconcile:
    async def test_without_a_token_nothing_is_compared(self, place: Place) -> None:
        assert not (await reconcile(place.store, place.http, place.key)).done
        await place.ask(token=False)
        outcome = await reconcile(place.store, place.http, place.key)
        assert not outcome.done
        assert "no token" in outcome.came

    async def test_a_ledger_that_there_is_not_begins(self, place: Place) -> None:
        place.deliver(3)
        await place.ask()
        outcome = await reconcile(place.store, place.http, place.key)
        assert (outcome.done, outcome.came) == (True, "there was no ledger; it began with 3 messages")

    async def test_what_is_missing_is_found_and_named(self, place: Place) -> None:
        await place.ask()
        await reconcile(place.store, place.http, place.key)
        outcome = await reconcile(place.store, place.http, place.key)
        assert (outcome.done, outcome.came) == (True, "compared 1 page: nothing was missing")
        place.deliver(IDS_SHOWN + 2)
        outcome = await reconcile(place.store, place.http, place.key)
        assert outcome.done
        assert f"{IDS_SHOWN + 2} messages were missing and are there now: 1, 2, 3" in outcome.came
        assert outcome.came.endswith("and 2 more")
        state = await place.store.ledger.state(place.key)
        assert state is not None
        assert state.held == IDS_SHOWN + 2

    async def test_what_the_host_says_is_told(self, place: Place) -> None:
        await place.ask()
        place.host.control.fail_next("list", status=503, text="in maintenance")
        outcome = await reconcile(place.store, place.http, place.key)
        assert not outcome.done
        assert "in maintenance" in outcome.came
        assert outcome.do


class TestReconnect:
    async def test_a_feed_that_nobody_runs(self, place: Place) -> None:
        outcome = await reconnect(place.store, place.key)
        assert not outcome.done
        assert "no daemon has it" in outcome.came

    async def test_a_feed_begins_anew(self, place: Place) -> None:
        await place.ask()
        async with place.daemon() as daemon:
            await place.until_state("live")
            connects = place.host.control.stats()["connects"]
            outcome = await reconnect(place.store, place.key)
            assert (outcome.done, outcome.came) == (True, f"its feed began anew and is live, on daemon {daemon.id}")
            assert place.host.control.stats()["connects"] == connects + 1

    async def test_a_feed_that_the_host_refuses_is_tried_again(self, place: Place) -> None:
        place.host.control.reject_upgrades(1000, status=403, text="not you")
        await place.ask()
        async with place.daemon():
            await place.until_state("stopped")
            outcome = await reconnect(place.store, place.key)
            assert outcome.done
            assert "is stopped" in outcome.came
            assert "not you" in outcome.came
            place.host.control.clear_faults()
            outcome = await reconnect(place.store, place.key)
            assert outcome.came.startswith("its feed began anew and is live")

    async def test_a_daemon_that_does_not_obey(self, place: Place) -> None:
        await place.store.fleet.beat(Member(id="deaf", name="deaf", since_s=1.0))
        await place.store.fleet.take([place.key], "deaf", over={})
        outcome = await reconnect(place.store, place.key, within_s=0.05)
        assert not outcome.done
        assert outcome.came == "daemon deaf has not done it within 0.05 s"


class TestForget:
    async def test_who_is_not_known_is_forgotten_already(self, place: Place) -> None:
        assert (await forget(place.store, place.key, everything=True)).done

    @pytest.mark.parametrize("everything", [False, True])
    async def test_what_is_kept_is_gone_and_its_daemon_lets_go(self, place: Place, everything: bool) -> None:
        documents = place.store.documents
        await documents.store(place.key, KINDS["subscriptions"], "main", b"x", expected=0, ttl_s=60.0)
        place.deliver(2)
        await place.ask()
        async with place.daemon() as daemon:
            await place.until_state("live")
            outcome = await forget(place.store, place.key, everything=everything)
            assert outcome.done
            assert daemon.feeds() == {}
            assert await place.store.ledger.state(place.key) is None
            assert await place.store.activations.get(place.key) is None
            assert await place.store.activations.feed(place.key) is None
            assert ("1 subscription, 0 idempotency records" in outcome.came) is everything
            assert list(await documents.names(place.key, KINDS["subscriptions"])) == ([] if everything else ["main"])
            await place.ask()
            await place.until_state("live")
            state = await place.store.ledger.state(place.key)
            assert state is not None
            assert state.held == 2

    async def test_a_daemon_that_holds_on_is_said(self, place: Place) -> None:
        await place.store.fleet.beat(Member(id="deaf", name="deaf", since_s=1.0))
        await place.store.fleet.take([place.key], "deaf", over={})
        await place.store.ledger.begin(place.key, [], Baseline())
        heard: list[Order] = []
        place.store.orders.listen(heard.append)
        outcome = await forget(place.store, place.key, everything=False, within_s=0.05)
        assert not outcome.done
        assert "repeat it" in outcome.do
        assert await place.store.ledger.state(place.key) is None
        assert heard == [Order(what="rest", caller=place.key)]
