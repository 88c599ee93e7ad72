from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

from ledger.embedded import EmbeddedRedis, free_port, packaged_servers
from ledger.port import LedgerUnavailable
from ledger.redis.scripts import Scripts
from ledger.redis.topology import (
    BadRedisUrl,
    ClusterTopology,
    RedisUrl,
    SentinelTopology,
    Standalone,
    connect,
    parse_url,
)
from ledger.values import START, Baseline, CallerKey, Seen
from tests.conftest import keys_without_ttl
from tests.contract.backends import RedisBackend, redis_backend
from tests.redis_setups import cluster, self_signed, tls_in_front, until_cluster, watched
from tests.within import within

PROGRAMS = [pytest.param(program, id=program.name) for program in packaged_servers()]
ALICE = CallerKey("a" * 32)
T = TypeVar("T")


def seen(message_id: int) -> Seen:
    return Seen(id=message_id, pid=None, root=message_id, from_="@bob@b.test", sent_at_s=5.0)


async def eventually(call: Callable[[], Awaitable[T]]) -> T:
    """The answer, once the store answers again; every failed attempt takes the time of a retry."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await call()
            except LedgerUnavailable:
                continue


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://localhost", RedisUrl(kind="standalone", nodes=(("localhost", 6379),))),
        (
            "rediss://app:p%40ss@redis.example:6390/3",
            RedisUrl(
                kind="standalone", nodes=(("redis.example", 6390),), db=3, tls=True, username="app", password="p@ss"
            ),
        ),
        ("redis://:pw@[::1]:7000", RedisUrl(kind="standalone", nodes=(("::1", 7000),), password="pw")),
        ("redis://h?db=2", RedisUrl(kind="standalone", nodes=(("h", 6379),), db=2, options={"db": "2"})),
        ("unix:///run/redis.sock?db=1", RedisUrl(kind="standalone", path="/run/redis.sock", db=1, options={"db": "1"})),
        (
            "redis+sentinel://u:p@a,b:1234/main/2",
            RedisUrl(
                kind="sentinel", nodes=(("a", 26379), ("b", 1234)), service="main", db=2, username="u", password="p"
            ),
        ),
        ("rediss+cluster://a,b:7001", RedisUrl(kind="cluster", nodes=(("a", 6379), ("b", 7001)), tls=True)),
    ],
)
def test_urls_that_are_understood(text: str, expected: RedisUrl) -> None:
    assert parse_url(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://localhost", "scheme 'http' is unknown"),
        ("redis+other://localhost", "scheme 'redis\\+other' is unknown"),
        ("unix+cluster:///x", "is unknown"),
        ("redis://", "no host with an optional port"),
        ("redis://host:port", "no host with an optional port"),
        ("redis://a,b", "several hosts"),
        ("redis://a/x", "database after the host is not a number"),
        ("redis://a/1/2", "path is not understood"),
        ("redis+cluster://a/1", "database 0 only"),
        ("redis+sentinel://a", "service is missing"),
        ("redis://a?socket_timeout=1", "an option is unknown"),
        ("redis://:ab#cd@a", "Write %23"),
    ],
)
def test_urls_that_are_not(text: str, reason: str) -> None:
    with pytest.raises(BadRedisUrl, match=reason):
        parse_url(text)


@pytest.mark.parametrize(
    "password", ["12/s3cret", "12?s3cret", "12#s3cret", "s3cret#12", "ab/s3cret", "/s3cret", "12/1/s3cret"]
)
def test_no_piece_of_a_password_is_shown(password: str) -> None:
    """A URL that falls apart inside the password says how to write it, and shows nothing of it."""
    for scheme in ("redis", "rediss", "redis+sentinel", "redis+cluster"):
        for rest in ("host", "host:6379", "host:6379/x", "host:6379/1"):
            with pytest.raises(BadRedisUrl, match="%23") as refused:
                parse_url(f"{scheme}://user:{password}@{rest}")
            assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rediss://user:secret@host/2", "rediss://host:6379/2"),
        (
            "redis+sentinel://user:secret@a,[::1]:99/main?sentinel_password=secret",
            "redis+sentinel://a:26379,[::1]:99/main",
        ),
        ("unix:///run/r.sock", "unix:///run/r.sock"),
        ("redis+cluster://:secret@a", "redis+cluster://a:6379"),
    ],
)
def test_no_secret_is_shown(text: str, shown: str) -> None:
    url = parse_url(text)
    assert url.shown() == shown
    assert "secret" not in repr(url)
    assert connect(url).shown == shown


@pytest.mark.parametrize("prefix", ["", "a b", "a{b", "a}b"])
def test_prefixes_that_would_break_hash_tags_are_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        connect("redis://localhost", prefix=prefix)


def test_keys_of_a_caller_share_a_hash_tag() -> None:
    topology = connect("redis://localhost", prefix="mine")
    assert topology.key(ALICE, "meta") == f"mine:{{{ALICE}}}:meta"
    assert topology.shared_key("fleet", "members") == "mine:{fleet}:members"
    assert topology.channel("arrivals") == "mine:arrivals"


@pytest.mark.parametrize(
    ("url", "kind"),
    [("redis://h", Standalone), ("redis+sentinel://h/s", SentinelTopology), ("redis+cluster://h", ClusterTopology)],
)
def test_the_url_decides(url: str, kind: type) -> None:
    assert type(connect(url)) is kind


@pytest.mark.parametrize("url", ["redis://:pw@h", "unix:///s", "rediss://h?ssl_ca_certs=/ca.pem"])
def test_no_read_is_without_a_deadline(url: str) -> None:
    topology = connect(url)
    assert isinstance(topology, Standalone)
    client: Any = topology.client
    settings = client.connection_pool.connection_kwargs
    assert settings["socket_timeout"] > 0
    assert settings["socket_connect_timeout"] > 0
    assert settings["retry"]._retries == 0


def key_names(server: EmbeddedRedis) -> list[bytes]:
    """All the keys of a server."""
    with redis.Redis.from_url(server.url) as client:
        return list(client.scan_iter())


async def use(backend: RedisBackend, caller: CallerKey = ALICE) -> None:
    """Begin, append and read a ledger, and be notified."""
    woken = asyncio.Event()
    end = backend.notifications.listen(caller, woken.set)
    async with backend.notifications.running():
        await within(backend.notifications.connected.wait(), 20)
        await within(woken.wait(), 20)
        woken.clear()
        await backend.ledger.begin(caller, [seen(1)], Baseline())
        await backend.ledger.append(caller, [seen(2)], "push")
        await within(woken.wait(), 20)
        assert [arrival.id for arrival in (await backend.ledger.read(caller, START, 10)).entries] == [1, 2]
    end()


async def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    async with EmbeddedRedis(config=[f"unixsocket {path}"]) as server:
        url = RedisUrl(kind="standalone", path=str(path), password=server.password)
        async with redis_backend(lambda: connect(url)) as backend:
            await use(backend)


@pytest.mark.parametrize("program", PROGRAMS)
async def test_an_acl_user_with_no_more_rights_than_the_manual_asks_for(program: Path) -> None:
    async with EmbeddedRedis(program=program) as server:
        with redis.Redis.from_url(server.url) as client:
            rules = "on >secret resetkeys ~fmsg:* resetchannels &fmsg:* -@all +@read +@write +@scripting +@pubsub"
            rules += " +@connection -@dangerous +time +info +client|setname"
            client.execute_command("ACL SETUSER", "ledgers", *rules.split())
        url = f"redis://ledgers:secret@127.0.0.1:{server.port}"
        async with redis_backend(lambda: connect(url)) as backend:
            await use(backend)
            state = await backend.ledger.state(ALICE)
            assert state is not None
            assert await backend.ledger.note_returned(ALICE, above=[1], position=2, head=state.head)
            found = await backend.ledger.find(ALICE, [1, 2])
            assert found.entries[1].returned
            assert found.handed_out == {2}
            await backend.ledger.forget(ALICE)
            with pytest.raises(LedgerUnavailable, match=r"(?i)permission"):
                await backend.scripts.command("GET", "others:key", idempotent=True)
        async with redis_backend(lambda: connect(url.replace("secret", "wrong"))) as backend:
            with pytest.raises(LedgerUnavailable, match="AuthenticationError"):
                await backend.ledger.state(ALICE)


async def test_tls(tmp_path: Path) -> None:
    certificate, context = self_signed(tmp_path)
    async with EmbeddedRedis(password="pw") as server, tls_in_front(server.port, context) as port:
        url = f"rediss://:pw@127.0.0.1:{port}"
        async with redis_backend(lambda: connect(f"{url}?ssl_ca_certs={certificate}")) as backend:
            await use(backend)
        async with redis_backend(lambda: connect(url)) as backend:
            with pytest.raises(LedgerUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
                await backend.ledger.state(ALICE)


async def test_tls_checks_the_name_unless_told_otherwise(tmp_path: Path) -> None:
    certificate, context = self_signed(tmp_path, name="127.0.0.2")
    async with EmbeddedRedis(password="pw") as server, tls_in_front(server.port, context) as port:
        url = f"rediss://:pw@127.0.0.1:{port}?ssl_ca_certs={certificate}"
        async with redis_backend(lambda: connect(url)) as backend:
            with pytest.raises(LedgerUnavailable, match="IP address mismatch"):
                await backend.ledger.state(ALICE)
        async with redis_backend(lambda: connect(f"{url}&ssl_check_hostname=false")) as backend:
            await use(backend)


@pytest.mark.processes
@pytest.mark.parametrize("program", PROGRAMS)
async def test_sentinel_replaces_a_killed_primary(program: Path) -> None:
    async with watched(program) as setup, redis_backend(lambda: connect(setup.url)) as backend:
        await use(backend)
        with redis.Redis.from_url(setup.primary.url) as client:
            replicas: object = client.wait(1, 10_000)
            assert replicas == 1
        woken = asyncio.Event()
        backend.notifications.listen(ALICE, woken.set)
        async with backend.notifications.running():
            await within(woken.wait(), 20)
            woken.clear()
            setup.primary.kill()
            appended = await eventually(lambda: backend.ledger.append(ALICE, [seen(3)], "push"))
            assert appended.state.held == 3
            await within(woken.wait(), 20)
            await within(backend.notifications.connected.wait(), 20)
            woken.clear()
            await eventually(lambda: backend.ledger.append(ALICE, [seen(4)], "push"))
            await within(woken.wait(), 20)
        assert keys_without_ttl(setup.replica) == []


@pytest.mark.processes
@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_cluster_spreads_callers_and_survives_its_nodes(program: Path) -> None:
    async with cluster(program=program) as nodes:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes[:2])
        async with redis_backend(lambda: connect(f"redis+cluster://:{nodes[0].password}@{hosts}")) as backend:
            callers = [CallerKey(f"{k:032x}") for k in range(12)]
            for caller in callers:
                await use(backend, caller)
                await backend.ledger.note_returned(caller, above=[2])
            assert all(key_names(node) for node in nodes)
            for node in nodes:
                node.kill()
            with pytest.raises(LedgerUnavailable):
                await backend.ledger.state(callers[0])
            for node in nodes:
                await node.restart_async(empty=False)
            for node in nodes:
                await until_cluster(node, len(nodes))
            for caller in callers:
                appended = await eventually(lambda caller=caller: backend.ledger.append(caller, [seen(3)], "push"))  # type: ignore[misc]  # a lambda's default
                assert [arrival.id for arrival in appended.new] == [3]
                assert appended.state.held == 3
            assert [key for node in nodes for key in keys_without_ttl(node)] == []


@pytest.mark.parametrize(
    "error",
    [
        AttributeError("'NoneType' object has no attribute 'writelines'"),
        RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_connection_that_redis_py_closes_under_a_command_is_a_lost_connection(error: Exception) -> None:
    """One command finds its node dead, and redis-py closes what the others are using."""
    topology = ClusterTopology(parse_url("redis+cluster://127.0.0.1:1"), prefix="fmsg")

    async def closed_under_it(*_: object) -> None:
        raise error

    topology._cluster.execute_command = closed_under_it
    with pytest.raises(LedgerUnavailable, match="closed under the command"):
        await Scripts(topology.commands).command("PING", idempotent=True)
    await topology.aclose()


async def test_a_redis_that_is_not_there_is_said() -> None:
    topology = connect(f"redis://127.0.0.1:{free_port()}")
    with pytest.raises(LedgerUnavailable, match="ConnectionError"):
        await Scripts(topology.commands).command("PING", idempotent=True)
    await topology.aclose()
