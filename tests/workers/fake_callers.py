"""Callers whose host is a fake one."""

from __future__ import annotations

from typing import Any, cast

from ledger.values import CallerKey
from tests.ledger.fake_host import ME, FakeHost
from workers.callers import Callers, Standing


class FakeCallers(Callers):
    """Everybody has a host of their own; who has none left no token."""

    def __init__(self) -> None:
        self.hosts: dict[CallerKey, FakeHost] = {}

    async def find(self, caller: CallerKey) -> Standing | None:
        host = self.hosts.get(caller)
        return None if host is None else Standing(cast("Any", host), ME)
