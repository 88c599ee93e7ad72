"""Faults as a client meets them, counting, and refusals (FMSG-003, "Base")."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from tests.sandbox.people import Person


async def test_an_unknown_path_is_no_json(alice: Person) -> None:
    for answer in (await alice.get("/1/nothing/there"), await alice.ask("PATCH", "/1")):
        assert (answer.status, answer.body) == (404, b"404 page not found")


async def test_an_api_key_acts_as_nobody_else(alice: Person, bob: Person) -> None:
    answer = await alice.ask("GET", "", headers={"X-FMSG-Act-As": bob.address})
    assert (answer.status, answer.error) == (403, "act-as is only available with identity-provider authentication")


async def test_requests_are_counted_per_route(alice: Person, bob: Person) -> None:
    bob.host.control.reset_stats()
    number = await alice.send(bob.address)
    await bob.get()
    await bob.get(f"/{number}/thread/messages")
    await bob.get("/999")
    stats = bob.host.control.stats()
    assert stats["requests"] == {"create": 1, "send": 1, "list": 1, "thread_messages": 1, "get": 1}
    assert stats["statuses"]["get 404"] == 1


async def test_the_next_requests_of_a_route_fail(alice: Person) -> None:
    alice.host.control.fail_next("list", times=2, status=429, text="slow down", code="busy", retry_after_s=3)
    for _ in range(2):
        answer = await alice.get()
        assert (answer.status, answer.json) == (429, {"error": "slow down", "code": "busy"})
        assert answer.headers["Retry-After"] == "3"
    assert (await alice.get()).status == 200


async def test_a_proxy_answers_html(alice: Person) -> None:
    alice.host.control.fail_next(status=502, text="Bad Gateway", html=True)
    answer = await alice.get("/sent")
    assert (answer.status, answer.headers["Content-Type"]) == (502, "text/html; charset=utf-8")
    assert answer.body.startswith(b"<html>")


async def test_a_request_that_is_cut_does_nothing(alice: Person, bob: Person) -> None:
    number = await alice.draft(bob.address)
    alice.host.control.fail_next("send", cut=True)
    with pytest.raises(aiohttp.ClientConnectionError):
        await alice.post(f"/{number}/send")
    assert (await alice.message(number))["time"] is None


async def test_a_lost_answer_leaves_the_message_sent(alice: Person, bob: Person) -> None:
    number = await alice.draft(bob.address)
    alice.host.control.lose_answers("send")
    with pytest.raises(aiohttp.ClientConnectionError):
        await alice.post(f"/{number}/send")
    assert (await alice.message(number))["time"] is not None
    assert (await alice.post(f"/{number}/send")).error == "message already sent"


async def test_a_request_hangs_until_it_is_let_go(alice: Person) -> None:
    alice.host.control.hang_next("create")
    hanging = asyncio.ensure_future(alice.post("", alice.wire("@bob@a.test")))
    await alice.asked("create")
    assert (await alice.get("/sent")).status == 200
    assert not hanging.done()
    alice.host.control.release()
    with pytest.raises(aiohttp.ClientConnectionError):
        await hanging


async def test_a_client_may_give_up_on_a_hanging_request(alice: Person) -> None:
    alice.host.control.hang_next("list")
    with pytest.raises(TimeoutError):
        await alice.ask("GET", "", timeout=aiohttp.ClientTimeout(total=0.05))
    assert (await alice.get()).status == 200


async def test_requests_can_be_delayed(alice: Person) -> None:
    alice.host.control.delay(60, route="list")
    with pytest.raises(TimeoutError):
        await alice.ask("GET", "", timeout=aiohttp.ClientTimeout(total=0.05))
    assert (await alice.get("/sent")).status == 200
    alice.host.control.delay(0.01)
    assert (await alice.get("/sent")).status == 200
    alice.host.control.delay(0, route="list")
    assert (await alice.get()).status == 200


async def test_the_token_route_fails_like_any_other(alice: Person) -> None:
    alice.host.control.fail_next("token", status=503, text="identity service unavailable")
    assert (await alice.sign_in()).status == 503
    assert (await alice.sign_in()).status == 200


async def test_faults_can_be_cleared(alice: Person) -> None:
    control = alice.host.control
    control.fail_next()
    control.hang_next()
    control.lose_answers()
    control.delay(60)
    control.deafen()
    control.set_database(up=False)
    control.clear_faults()
    assert (await alice.get()).status == 200
