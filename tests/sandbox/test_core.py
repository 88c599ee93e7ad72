"""A host's parts together, without HTTP."""

from __future__ import annotations

import pytest

from sandbox.host import SandboxHost
from sandbox.switches import OLDER
from sandbox.wire import RouteRefused


async def test_messages_are_found_by_id_and_where_the_host_can_by_hash() -> None:
    host = SandboxHost("A.test")
    number = host.control.deliver("@x@b.test", ["@y@a.test"])
    found = host.core.resolve(str(number))
    assert host.core.resolve((found.sha256 or "").upper()) is found
    host.core.switches = OLDER
    with pytest.raises(RouteRefused):
        host.core.resolve(found.sha256 or "")
    host.close()


def test_domains_are_local_whatever_their_case() -> None:
    host = SandboxHost("A.test")
    assert host.domain == "a.test"
    assert host.core.is_local("@x@a.TEST")
    assert not host.core.is_local("@x@b.test")
