from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from fmsg.errors import BadInput
from fmsg.http import HostHttp
from ledger.store import MemoryStore
from mcp_front.http.gate import BindRefused
from mcp_front.http.serve import product_version, serve_http
from mcp_front.settings import Budgets, FrontSettings, HttpSettings
from tests.mcp_front.fakes import ANSWER_S, Front, call, heads


async def start(settings: FrontSettings) -> None:
    """Serve with settings that must not be served."""
    async with HostHttp("http://127.0.0.1:9") as http, MemoryStore() as store:
        await asyncio.wait_for(serve_http(settings, store, http, stop=asyncio.Event()), ANSWER_S)


@pytest.mark.parametrize(
    ("http", "names"),
    [
        (HttpSettings(host="0.0.0.0", port=0), "FMSG_MCP_ALLOWED_HOSTS"),
        (HttpSettings(port=0, allowed_origins=("*",)), "FMSG_MCP_ALLOWED_ORIGINS"),
        (HttpSettings(port=0, trusted_proxies=("lb",)), "FMSG_MCP_TRUSTED_PROXIES"),
    ],
)
async def test_settings_that_must_not_be_served_are_not(http: HttpSettings, names: str) -> None:
    with pytest.raises(ValueError, match=names):
        await start(FrontSettings(http=http))
    assert issubclass(BindRefused, ValueError)


async def test_a_directory_that_cannot_be_read_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="FMSG_DIRECTORY"):
        await start(FrontSettings(http=HttpSettings(port=0), directory=tmp_path / "none.json"))


async def test_an_address_in_use_is_told_at_once(running: Front) -> None:
    with pytest.raises(OSError, match="in use"):
        await start(FrontSettings(http=HttpSettings(port=running.port)))


async def test_every_request_has_its_own_caller_and_the_processs_means(running: Front) -> None:
    for address in ("@ann@a.test", "@bob@a.test"):
        async with running.http.post(running.endpoint, json=call("who"), headers=heads(running.key(address))) as answer:
            assert address in await answer.text()


def test_clients_are_told_the_version() -> None:
    assert product_version()[0].isdecimal()


async def test_operators_see_how_many_waits_may_be_held(running: Front) -> None:
    assert REGISTRY.get_sample_value("fmsg_mcpd_waits_budget") == Budgets().max_waits
