"""The token of a feed."""

from __future__ import annotations

import pytest

from daemon.feed.tokens import ActivationTokens
from fmsg.errors import CredentialMissing
from ledger.memory import MemoryActivations
from ledger.values import CallerKey

CALLER = CallerKey("c" * 32)
ADDRESS = "@me@here.test"


class Time:
    """A clock that is moved by hand."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> Time:
    """Now."""
    return Time()


@pytest.fixture
def activations(time: Time) -> MemoryActivations:
    """None yet."""
    return MemoryActivations(ttl_s=1e6, clock=time)


async def leave(activations: MemoryActivations, token: str | None, expires_at_s: float = 2000.0) -> None:
    """A request leaves a token."""
    await activations.activate(
        CALLER, address=ADDRESS, api_url="https://h.test", token=token, token_expires_at_s=expires_at_s
    )


@pytest.fixture
def tokens(activations: MemoryActivations, time: Time) -> ActivationTokens:
    """The feed's source."""
    return ActivationTokens(activations, CALLER, ADDRESS, clock=time)


async def test_the_token_is_what_a_request_left(activations: MemoryActivations, tokens: ActivationTokens) -> None:
    with pytest.raises(CredentialMissing):
        await tokens.token()
    await leave(activations, None)
    with pytest.raises(CredentialMissing):
        await tokens.token()
    await leave(activations, "one")
    token = await tokens.token()
    assert (token.value, token.address, token.expires_at_s) == ("one", ADDRESS, 2000.0)


async def test_it_is_kept_while_it_lasts_whatever_becomes_of_the_activation(
    activations: MemoryActivations, tokens: ActivationTokens, time: Time
) -> None:
    await leave(activations, "one")
    await tokens.token()
    await activations.retire(CALLER)
    time.now_s = 1980.0
    assert (await tokens.token()).value == "one"
    time.now_s = 1995.0
    with pytest.raises(CredentialMissing):
        await tokens.token()


async def test_a_refused_token_is_never_given_again(activations: MemoryActivations, tokens: ActivationTokens) -> None:
    await leave(activations, "one")
    stale = await tokens.token()
    with pytest.raises(CredentialMissing):
        await tokens.renew(stale)
    with pytest.raises(CredentialMissing):
        await tokens.token()
    await leave(activations, "two")
    assert (await tokens.renew(stale)).value == "two"


async def test_two_refusals_of_one_token_do_not_throw_the_next_one_away(
    activations: MemoryActivations, tokens: ActivationTokens
) -> None:
    await leave(activations, "one")
    stale = await tokens.token()
    await leave(activations, "two")
    await tokens.renew(stale)
    await activations.retire(CALLER)
    assert (await tokens.renew(stale)).value == "two"


async def test_a_refused_caller_needs_another_token(activations: MemoryActivations, tokens: ActivationTokens) -> None:
    tokens.refuse()
    await leave(activations, "one")
    await tokens.token()
    tokens.refuse()
    with pytest.raises(CredentialMissing):
        await tokens.token()
    await leave(activations, "two")
    assert (await tokens.token()).value == "two"


async def test_its_repr_shows_no_token(activations: MemoryActivations, tokens: ActivationTokens) -> None:
    await leave(activations, "secret")
    await tokens.token()
    assert repr(tokens) == "ActivationTokens(cccccccc…)"
