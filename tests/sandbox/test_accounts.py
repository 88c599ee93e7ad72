"""Token exchange and the re-check of the key on every protected request (FMSG-003, "Token exchange")."""

from __future__ import annotations

import base64
import re

import msgspec
import pytest

from tests.sandbox.conftest import Clock, Cluster
from tests.sandbox.people import Person


def claims(token: str) -> dict[str, object]:
    body = token.split(".")[1]
    decoded = msgspec.json.decode(base64.urlsafe_b64decode(body + "=="))
    assert isinstance(decoded, dict)
    return decoded


async def test_exchange_answers_as_documented(alice: Person, clock: Clock) -> None:
    answer = await alice.sign_in()
    assert answer.status == 200
    assert answer.json["token_type"] == "Bearer"
    assert answer.json["expires_in"] == 43_200
    assert answer.json["expires_at"] == "2026-05-29T08:26:40Z"
    found = claims(answer.json["access_token"])
    assert {"sub", "owner", "api_key_id", "iss", "aud", "iat", "exp"} == set(found)
    assert found["sub"] == "@alice@a.test"
    assert found["exp"] == pytest.approx(clock.now_s + 43_200, abs=0.01)


async def test_keys_hold_every_character_of_base64(alice: Person) -> None:
    assert re.fullmatch(r"fmsgk_[A-Za-z0-9+/]{16}_[A-Za-z0-9+/]{43}=", alice.key)
    assert "+" in alice.key
    assert "/" in alice.key


@pytest.mark.parametrize("authorization", ["", "Basic abc", "Bearer", "Bearer "])
async def test_exchange_without_a_key(alice: Person, authorization: str) -> None:
    answer = await alice.ask("POST", "/token", authorization=authorization)
    assert (answer.status, answer.error) == (401, "missing or malformed Authorization header")


@pytest.mark.parametrize("key", ["fmsgk_x_y", "sk-123", "fmsgk_", "fmsgk"])
async def test_exchange_of_an_unknown_key(alice: Person, key: str) -> None:
    answer = await alice.ask("POST", "/token", authorization=f"Bearer {key}")
    assert (answer.status, answer.error) == (401, "invalid api key")


async def test_exchange_of_half_a_key(alice: Person) -> None:
    answer = await alice.ask("POST", "/token", authorization=f"Bearer {alice.key[:-1]}")
    assert (answer.status, answer.error) == (401, "invalid api key")


async def test_only_the_exchange_takes_a_lower_case_bearer(alice: Person) -> None:
    assert (await alice.ask("POST", "/token", authorization=f"bearer {alice.key}")).status == 200
    answer = await alice.ask("GET", "", authorization=f"bearer {alice.token}")
    assert (answer.status, answer.error) == (401, "missing or malformed Authorization header")


async def test_a_key_expires(alice: Person, clock: Clock) -> None:
    alice.key = alice.host.control.create_key(alice.address, life_s=60)
    assert (await alice.sign_in()).status == 200
    clock.now_s += 61
    answer = await alice.sign_in()
    assert (answer.status, answer.error) == (401, "api key expired")
    assert (await alice.get()).status == 401


async def test_a_key_bound_to_other_source_addresses(alice: Person) -> None:
    alice.key = alice.host.control.create_key(alice.address, cidrs=["10.0.0.0/8"])
    answer = await alice.sign_in()
    assert (answer.status, answer.error) == (403, "source IP not allowed")
    bearer = f"Bearer {alice.key}"
    inside = await alice.ask("POST", "/token", authorization=bearer, headers={"X-Forwarded-For": "10.1.2.3"})
    assert inside.status == 200
    odd = await alice.ask("POST", "/token", authorization=bearer, headers={"X-Forwarded-For": "nobody"})
    assert (odd.status, odd.error) == (401, "invalid source IP")


async def test_a_deleted_address(alice: Person) -> None:
    alice.host.control.set_address(alice.address, known=False)
    for answer in (await alice.sign_in(), await alice.get()):
        assert (answer.status, answer.error) == (400, "User @alice@a.test not found")


async def test_an_address_that_may_not_send(alice: Person) -> None:
    alice.host.control.set_address(alice.address, may_send=False)
    for answer in (await alice.sign_in(), await alice.get()):
        assert (answer.status, answer.error) == (403, "User @alice@a.test not authorised to send new messages")


async def test_without_the_identity_service(alice: Person) -> None:
    alice.host.control.set_identity_service(up=False)
    for answer in (await alice.sign_in(), await alice.get()):
        assert (answer.status, answer.error) == (503, "identity service unavailable")
    alice.host.control.set_identity_service(up=True)
    assert (await alice.get()).status == 200


async def test_without_the_database(alice: Person) -> None:
    alice.host.control.set_database(up=False)
    answer = await alice.sign_in()
    assert (answer.status, answer.error) == (500, "failed to validate api key")
    assert (await alice.get()).status == 500


async def test_a_revoked_key_ends_its_tokens_before_they_expire(alice: Person) -> None:
    alice.host.control.revoke_key(alice.key)
    answer = await alice.get()
    assert (answer.status, answer.error) == (401, "api key revoked")
    assert (await alice.sign_in()).error == "invalid api key"


async def test_a_rotated_key_ends_its_tokens(alice: Person) -> None:
    fresh = alice.host.control.rotate_key(alice.key)
    assert (await alice.get()).error == "api key revoked"
    alice.key = fresh
    assert (await alice.sign_in()).status == 200
    assert (await alice.get()).status == 200


async def test_a_token_lives_ten_seconds_past_its_expiry(alice: Person, clock: Clock) -> None:
    alice.host.control.set_token_life(60)
    assert (await alice.sign_in()).json["expires_in"] == 60
    clock.now_s += 69
    assert (await alice.get()).status == 200
    clock.now_s += 2
    answer = await alice.get()
    assert (answer.status, answer.error) == (401, "token expired")


async def test_tokens_can_be_expired_at_once(cluster: Cluster, alice: Person, bob: Person) -> None:
    alice.host.control.expire_tokens(alice.address)
    assert (await alice.get()).error == "token expired"
    assert (await bob.get()).status == 200
    await alice.sign_in()
    assert (await alice.get()).status == 200
    alice.host.control.expire_tokens()
    assert [(await one.get()).status for one in (alice, bob)] == [401, 401]


@pytest.mark.parametrize("token", ["x", "a.b.c", "..", "fmsgk_a_b"])
async def test_a_token_nobody_issued(alice: Person, token: str) -> None:
    answer = await alice.ask("GET", "", authorization=f"Bearer {token}")
    assert (answer.status, answer.error) == (401, "invalid token")


async def test_a_token_with_other_claims(alice: Person) -> None:
    head, body, signature = alice.token.split(".")
    forged = (
        base64.urlsafe_b64encode(msgspec.json.encode({**claims(f"{head}.{body}."), "sub": "@bob@a.test"}))
        .decode()
        .rstrip("=")
    )
    answer = await alice.ask("GET", "", authorization=f"Bearer {head}.{forged}.{signature}")
    assert answer.status == 401
