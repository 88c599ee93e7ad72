"""What a feed does when the host does not accept its token, or its caller."""

from __future__ import annotations

from tests.daemon.world import World


async def test_without_a_token_the_feed_asks_and_the_next_request_answers(world: World) -> None:
    alice = await world.agent("alice", ask=False)
    await world.daemon()
    await alice.ask(token=False)
    report = await alice.until("asking")
    assert report.needs_credential
    await alice.ask()
    assert not (await alice.until("live")).needs_credential


async def test_a_refused_token_is_not_tried_again_but_a_new_one_is(world: World) -> None:
    alice = await world.agent("alice", ask=False)
    await alice.ask()
    world.host.control.expire_tokens(alice.address)
    await world.daemon()
    assert (await alice.until("asking")).needs_credential
    attempts = world.host.core.faults.requests["ws"]
    await world.until_called("get", 3)  # it looks for another token, and looks again
    assert world.host.core.faults.requests["ws"] == attempts
    await alice.ask()
    await alice.until("live")


async def test_a_feed_whose_token_expired_keeps_its_socket_and_fetches_nothing(world: World) -> None:
    alice = await world.agent("alice")
    await world.daemon()
    await alice.until("live")
    world.host.control.expire_tokens(alice.address)

    async def asks() -> bool:
        report = await alice.report()
        return report is not None and report.live and report.needs_credential

    await world.bell.until(asks)
    lists = world.host.core.faults.requests["list"]
    new = world.deliver(alice)
    (entry,) = await alice.until_ids(new)
    assert entry.source == "push"
    await world.until_called("get", 3)
    assert (world.host.core.faults.requests["list"], alice.sockets) == (lists, 1)
    await alice.ask()
    await world.bell.until(lambda: world.host.core.faults.requests["list"] > lists)

    async def content() -> bool:
        report = await alice.report()
        return report is not None and report.live and not report.needs_credential and report.error is None

    await world.bell.until(content)


async def test_a_refused_caller_stops_the_feed_which_says_why_in_the_hosts_words(world: World) -> None:
    alice = await world.agent("alice")
    world.host.control.fail_next("ws", status=403, text="User @alice@host.test not authorised")
    await world.daemon()
    report = await alice.until("stopped")
    assert report.error == "the host answered 403: User @alice@host.test not authorised"
    assert alice.sockets == 0


async def test_a_stopped_feed_tries_again_with_another_token_but_not_at_once(world: World) -> None:
    alice = await world.agent("alice")
    world.host.control.fail_next("ws", status=400, text="User @alice@host.test not found")
    await world.daemon(stopped_s=0.3)
    await alice.until("stopped")
    attempts = world.host.core.faults.requests["ws"]
    await alice.ask()
    await world.until_called("get", 1)
    assert world.host.core.faults.requests["ws"] == attempts
    await alice.until("live")


async def test_a_list_that_refuses_the_caller_closes_the_socket_too(world: World) -> None:
    alice = await world.agent("alice")
    await world.daemon()
    await alice.until("live")
    world.host.control.fail_next("list", times=1, status=403, text="access denied")
    await alice.until("stopped")
    await alice.until_sockets(0)


async def test_a_host_that_asks_for_patience_gets_it(world: World) -> None:
    alice = await world.agent("alice")
    world.host.control.fail_next("ws", status=503, text="busy", retry_after_s=1)
    await world.daemon(poll_s=60.0)
    report = await alice.until("backing_off")
    assert report.error == "the host answered 503: busy"
    before_s = report.since_s
    assert (await alice.until("live")).since_s - before_s >= 1.0
    assert world.host.core.faults.requests["ws"] == 2


async def test_while_it_backs_off_the_feed_polls(world: World) -> None:
    alice = await world.agent("alice")
    await world.daemon()
    await alice.until("live")
    world.host.control.reject_upgrades(10_000, status=502)
    world.host.control.drop_sockets(alice.address)
    await alice.until("backing_off")
    new = world.deliver(alice)
    (entry,) = await alice.until_ids(new)
    assert entry.source == "poll"
    assert alice.sockets == 0


async def test_a_list_that_fails_stalls_a_new_feed_and_hurts_no_live_one(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob", ask=False)
    await world.daemon()
    await alice.until("live")
    world.host.control.fail_next("list", times=10_000, status=500)
    await bob.ask()
    assert (await bob.until("stalled")).error == "the host answered 500: internal server error"
    new = world.deliver(alice)
    assert (await alice.until_ids(new))[0].source == "push"
    await world.bell.until(lambda: world.host.core.faults.requests["list"] > 5)
    assert (await alice.until("live")).error is None
    world.host.control.clear_faults()
    await bob.until("live")


async def test_a_token_that_is_refused_after_it_was_renewed_is_not_tried_again(world: World) -> None:
    """The second refusal is taken as seriously as the first: only another token ends the asking."""
    alice = await world.agent("alice")
    await world.daemon()
    await alice.until("live")
    await alice.ask()
    world.host.control.fail_next("list", times=2, status=401)

    async def asks() -> bool:
        report = await alice.report()
        return report is not None and report.needs_credential

    await world.bell.until(asks)
    for _ in range(5):
        await world.until_called("get", 1)
        assert await asks(), "the activation holds the token that was refused"
    await alice.ask()

    async def content() -> bool:
        return not await asks()

    await world.bell.until(content)
