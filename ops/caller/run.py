"""`fmsg-mcpd caller @address`: everything known of one caller, and the few things that can be done for it."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Literal

import msgspec

from fmsg.directory import Directory
from fmsg.urls import base_url
from ledger.port import LedgerError
from ledger.store import RedisStore
from ledger.values import CallerKey, caller_key
from ops import interrupt, parts
from ops.caller.orders import OrderOutcome, forget, reconcile, reconnect
from ops.caller.show import plain, plain_outcome, to_json
from ops.caller.view import CallerView, look_at
from ops.own_redis import settings_of
from ops.settings import SettingError, Settings, load

WITHIN_S = 60.0
"""How long all of it may take: an order is waited for, and the host's list may be long."""

Forget = Literal["ledger", "everything"]


class CallerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    address: str
    reconcile: bool = False
    reconnect: bool = False
    forget: Forget | None = None
    yes: bool = False
    data_dir: str | None = None
    as_json: bool = False


def caller(wanted: CallerOptions) -> int:
    """Show a caller, after an order where one was given.

    The exit status: 0, 1 where Redis cannot be asked or the order was not carried out, 2 for what cannot be asked for.
    """
    # The libraries' log lines would be printed in between; what they say is in what is shown.
    logging.getLogger().addHandler(logging.NullHandler())
    if wanted.forget == "everything" and not wanted.yes:
        text = "--forget-everything deletes the caller's subscriptions, and nothing brings them back. Add --yes."
        print(f"fmsg-mcpd caller: {text}", file=sys.stderr)
        return 2
    try:
        settings = settings_of(load(), wanted.data_dir)
        return interrupt.run(_run(settings, wanted))
    except (SettingError, ValueError) as error:
        print(f"fmsg-mcpd caller: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


async def _run(settings: Settings, wanted: CallerOptions) -> int:
    api_url = base_url(settings.need_api_url(), allow_insecure=settings.allow_insecure_http)
    address = Directory.load(settings.directory, settings.default_domain).resolve(wanted.address, argument="address")
    key = caller_key(api_url, address.address)
    store = parts.redis_store(settings if wanted.data_dir is None else parts.with_seal_key(settings))
    try:
        async with asyncio.timeout(WITHIN_S):
            outcome = await _obey(settings, store, key, wanted)
            view = await look_at(store, address=address.address, caller=key)
    except (LedgerError, TimeoutError) as error:
        why = str(error) or f"Redis: no answer within {WITHIN_S:g} s."
        print(f"fmsg-mcpd caller: {why} `fmsg-mcpd doctor --only redis` says more.", file=sys.stderr)
        return 1
    finally:
        await store.topology.aclose()
    _print(view, outcome, as_json=wanted.as_json)
    return 0 if outcome is None or outcome.done else 1


async def _obey(settings: Settings, store: RedisStore, key: CallerKey, wanted: CallerOptions) -> OrderOutcome | None:
    if wanted.reconcile:
        async with parts.host_http(settings) as http:
            return await reconcile(store, http, key)
    if wanted.reconnect:
        return await reconnect(store, key)
    if wanted.forget is not None:
        return await forget(store, key, everything=wanted.forget == "everything")
    return None


def _print(view: CallerView, outcome: OrderOutcome | None, *, as_json: bool) -> None:
    if as_json:
        print(to_json(view, outcome).decode())
        return
    if outcome is not None:
        print(f"{plain_outcome(outcome)}\n")
    print(plain(view))
