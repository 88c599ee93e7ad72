"""How to reach Redis: the only module that knows standalone, Sentinel, Cluster, TLS, ACL users and the key prefix.

URLs (user and password are those of an ACL user; percent-encode what is special in them)::

    redis://[user:password@]host[:6379][/db]                          rediss:// with TLS
    unix:///path/to/socket[?db=0]
    redis+sentinel://[user:password@]host[:26379][,host…]/service[/db]  rediss+sentinel:// with TLS
    redis+cluster://[user:password@]host[:6379][,host…]                 rediss+cluster:// with TLS

Options after ``?``: ``ssl_ca_certs``, ``ssl_certfile``, ``ssl_keyfile`` (paths), ``ssl_check_hostname`` (``false``
where the certificates name no addresses), and for Sentinel ``sentinel_username``, ``sentinel_password``.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec
import redis.exceptions as faults
from redis.asyncio import (
    Connection,
    ConnectionPool,
    Redis,
    RedisCluster,
    Sentinel,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.client import PubSub
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from ledger.redis.batching import BATCH, LANES, Batching
from ledger.redis.scripts import MAX_CONCURRENT, Commands, Key
from ledger.values import CallerKey

COMMAND_TIMEOUT_S = 5.0
"""A command is answered in microseconds: a server that took this long hangs or is unreachable."""

CONNECT_TIMEOUT_S = 3.0
"""To open a connection, TLS included: a lost SYN is repeated after 1 s, so this allows one loss."""

HEALTH_CHECK_S = 15.0
"""A connection idle for longer is tried with a PING before use: proxies and firewalls drop idle ones silently."""

_READER = {"health_check_interval": 0}
"""Settings of connections that read published messages: their reader sends its own PINGs."""

DEFAULT_PORTS = {"standalone": 6379, "cluster": 6379, "sentinel": 26379}

_PATHS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_OPTIONS = (*_PATHS, "ssl_check_hostname", "sentinel_username", "sentinel_password", "db")

Kind = Literal["standalone", "sentinel", "cluster"]


SHARDS = 16
"""Slots over which the records of all callers are spread (activations, leases). In one slot, one script could answer
for all, but all of them would be on one node of a Cluster; in a slot per caller, thousands of scripts would be needed.
All processes of a deployment must count the same, so it is no setting."""


class BadRedisUrl(ValueError):
    """The URL of Redis cannot be understood. The text names the part, never a password."""


class RedisUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed URL."""

    kind: Kind
    nodes: tuple[tuple[str, int], ...] = ()
    path: str | None = None
    service: str | None = None
    db: int = 0
    tls: bool = False
    username: str | None = None
    password: str | None = None
    options: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"RedisUrl({self.shown()})"

    def shown(self) -> str:
        """The URL without user, password and options, for logs and the doctor."""
        if self.path is not None:
            return f"unix://{self.path}"
        scheme = ("rediss" if self.tls else "redis") + ("" if self.kind == "standalone" else f"+{self.kind}")
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.nodes)
        tail = f"/{self.service}" if self.service else ""
        return f"{scheme}://{hosts}{tail}" + (f"/{self.db}" if self.db else "")


_ESCAPE = "In a password, write / as %2F, ? as %3F, # as %23 and @ as %40."
"""What usually makes a URL fall apart in the wrong place. No piece of it is shown: it may be of the password."""


def parse_url(text: str) -> RedisUrl:
    """Parse one of the forms above. Raises `BadRedisUrl`."""
    if "#" in text:
        # All after it would be left out, and a piece of the password before it taken for the host.
        raise BadRedisUrl("Redis URL: it has a # in it. Write %23 for a # in the user or the password.")
    parts = urlsplit(text)
    base, _, kind = parts.scheme.partition("+")
    if base not in ("redis", "rediss", "unix") or kind not in ("", "sentinel", "cluster") or (base == "unix" and kind):
        raise BadRedisUrl(
            f"Redis URL: scheme {parts.scheme!r} is unknown. Use redis://, rediss://, redis+sentinel:// or redis+cluster://."
        )
    if "#" in text or "@" in parts.path:
        raise BadRedisUrl(f"Redis URL: a # or an @ stands where none belongs, so it is not used. {_ESCAPE}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS:
            raise BadRedisUrl(f"Redis URL: an option is unknown. Known are {', '.join(_OPTIONS)}. {_ESCAPE}")
    credentials, _, hosts = parts.netloc.rpartition("@")
    username, _, password = credentials.partition(":")
    common: dict[str, Any] = {
        "username": unquote(username) or None,
        "password": unquote(password) or None,
        "tls": base == "rediss",
        "options": options,
    }
    if base == "unix":
        return RedisUrl(kind="standalone", path=unquote(parts.path), db=_db(options.get("db", "0")), **common)
    named: Kind = cast("Kind", kind or "standalone")
    nodes = tuple(_node(host, DEFAULT_PORTS[named]) for host in hosts.split(","))
    if named == "standalone" and len(nodes) > 1:
        raise BadRedisUrl("Redis URL: several hosts need redis+sentinel:// or redis+cluster://.")
    return RedisUrl(kind=named, nodes=nodes, **_path(named, parts, options), **common)


def _path(kind: Kind, parts: SplitResult, options: dict[str, str]) -> dict[str, Any]:
    segments = [unquote(segment) for segment in parts.path.split("/") if segment]
    service = None
    if kind == "sentinel":
        if not segments:
            raise BadRedisUrl("Redis URL: the Sentinel service is missing. Write redis+sentinel://host:26379/service.")
        service = segments.pop(0)
    db = _db(segments[0] if segments else options.get("db", "0"))
    if len(segments) > 1 or (kind == "cluster" and db):
        raise BadRedisUrl("Redis URL: the path is not understood. A Cluster has database 0 only.")
    return {"service": service, "db": db}


def _db(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise BadRedisUrl(f"Redis URL: the database after the host is not a number. {_ESCAPE}")
    return int(text)


def _node(text: str, default_port: int) -> tuple[str, int]:
    try:
        split = urlsplit(f"//{text}")
        host, port = split.hostname, split.port
    except ValueError:
        host, port = None, None
    if not host:
        raise BadRedisUrl(f"Redis URL: what is where a host belongs is no host with an optional port. {_ESCAPE}")
    return host, port or default_port


class Topology(ABC):
    """One Redis, however it is made up. Opens connections when they are needed; close it in the end."""

    kind: Kind = "standalone"
    shown: str = ""
    """Where it is, without credentials."""
    at_once: int = MAX_CONCURRENT
    """Commands worth having in flight."""
    keys_mix: bool = True
    """Whether one script may read the keys of several callers."""

    def __init__(self, prefix: str) -> None:
        if not prefix or set("{}\0 ") & set(prefix):
            raise ValueError(f"Redis prefix {prefix!r}: it must not be empty nor contain braces or spaces.")
        self.prefix = prefix

    @property
    @abstractmethod
    def commands(self) -> Commands:
        """The client for commands and scripts. Never for reads that block."""

    @abstractmethod
    def pubsub(self) -> AbstractAsyncContextManager[PubSub]:
        """A connection of its own for reading published messages. Raises redis-py's errors."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close every connection."""

    def key(self, caller: CallerKey, part: str) -> Key:
        """The key of a part of what is kept for a caller; all of a caller's keys share a hash tag."""
        return Key(f"{self.prefix}:{{{caller}}}:{part}")

    def shared_key(self, group: str, part: str) -> Key:
        """A key that belongs to no caller; keys of one group share a hash tag."""
        return Key(f"{self.prefix}:{{{group}}}:{part}")

    def channel(self, name: str) -> str:
        """The name of a channel to publish on."""
        return f"{self.prefix}:{name}"


class Standalone(Topology):
    """One server, by TCP, TLS or a Unix socket."""

    at_once = LANES * BATCH

    def __init__(self, url: RedisUrl, *, prefix: str) -> None:
        super().__init__(prefix)
        self.shown = url.shown()
        if url.path is not None:
            kind: type[Any] = UnixDomainSocketConnection
            where: dict[str, Any] = {"path": url.path}
        else:
            kind = SSLConnection if url.tls else Connection
            where = {"host": url.nodes[0][0], "port": url.nodes[0][1]}
        common = {"connection_class": kind, "db": url.db, **where, **_connection(url)}
        if url.path is not None:
            common.pop("socket_keepalive")
        self.client = Redis(connection_pool=ConnectionPool(**common))
        """For libraries that bring commands of their own."""
        self._commands = Batching(self.client)
        self._reader = Redis(connection_pool=ConnectionPool(**{**common, **_READER}))

    @property
    def commands(self) -> Commands:
        return self._commands

    def pubsub(self) -> AbstractAsyncContextManager[PubSub]:
        return self._reader.pubsub()

    async def aclose(self) -> None:
        await self._commands.aclose()
        await _close(self.client)
        await _close(self._reader)


class SentinelTopology(Topology):
    """A primary that Sentinels name and replace."""

    kind: Kind = "sentinel"
    at_once = LANES * BATCH

    def __init__(self, url: RedisUrl, *, prefix: str) -> None:
        super().__init__(prefix)
        self.shown = url.shown()
        common = _connection(url)
        theirs = {name: value for name, value in common.items() if name not in ("username", "password")}
        theirs["username"] = url.options.get("sentinel_username")
        theirs["password"] = url.options.get("sentinel_password")
        if url.tls:
            common["ssl"] = theirs["ssl"] = True
        untyped_sentinel: Any = Sentinel
        self._sentinel = untyped_sentinel(list(url.nodes), sentinel_kwargs=theirs, db=url.db, **common)
        service = cast("str", url.service)
        self.client: Redis = self._sentinel.master_for(service)
        """For libraries that bring commands of their own."""
        self._commands = Batching(self.client)
        self._reader: Redis = self._sentinel.master_for(service, **_READER)

    @property
    def commands(self) -> Commands:
        return self._commands

    def pubsub(self) -> AbstractAsyncContextManager[PubSub]:
        """Reads from the primary; a demoted one is closed by its Sentinel."""
        return self._reader.pubsub()

    async def aclose(self) -> None:
        await self._commands.aclose()
        for client in (self.client, self._reader, *self._sentinel.sentinels):
            await _close(client)


class ClusterTopology(Topology):
    """A Redis Cluster. What one node publishes is heard on all, so the reader asks any of them."""

    kind: Kind = "cluster"
    keys_mix = False

    def __init__(self, url: RedisUrl, *, prefix: str) -> None:
        super().__init__(prefix)
        self.shown = url.shown()
        self._url = url
        self._next = 0
        self._cluster = RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in url.nodes],
            # Attempts are repeated in `ledger.redis.scripts` alone, where it is known what may be.
            cluster_error_retry_attempts=0,
            connection_error_retry_attempts=0,
            ssl=url.tls,
            **{**_connection(url), "retry": None},
        )
        self._first_nodes = dict(self._cluster.nodes_manager.startup_nodes)

    @property
    def commands(self) -> Commands:
        return self

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command to the node that holds its keys."""
        # redis-py drops every node that failed from those it starts with, and after an outage of all has none left.
        self._cluster.nodes_manager.startup_nodes.update(self._first_nodes)
        try:
            return await self._cluster.execute_command(*args, **options)
        except (AttributeError, RuntimeError) as error:
            # Where one command finds its node dead, redis-py closes that node's connections under all the others.
            raise faults.ConnectionError(f"the connection was closed under the command ({error})") from error

    @asynccontextmanager
    async def pubsub(self) -> AsyncIterator[PubSub]:
        """Each call takes the next node, so a dead one is left behind."""
        known = [(node.host, int(node.port)) for node in self._cluster.get_nodes()] or list(self._url.nodes)
        host, port = known[self._next % len(known)]
        self._next += 1
        kind = SSLConnection if self._url.tls else Connection
        settings = {**_connection(self._url), **_READER}
        client = Redis(connection_pool=ConnectionPool(connection_class=kind, host=host, port=port, **settings))
        try:
            async with client.pubsub() as reader:
                yield reader
        finally:
            await _close(client)

    async def aclose(self) -> None:
        await self._cluster.aclose()


def connect(url: str | RedisUrl, *, prefix: str = "fmsg") -> Topology:
    """The topology that a URL names; nothing is connected yet. Raises `BadRedisUrl`."""
    parsed = parse_url(url) if isinstance(url, str) else url
    if parsed.kind == "sentinel":
        return SentinelTopology(parsed, prefix=prefix)
    if parsed.kind == "cluster":
        return ClusterTopology(parsed, prefix=prefix)
    return Standalone(parsed, prefix=prefix)


async def _close(client: Redis) -> None:
    # `Redis.aclose` leaves a pool alone that it did not make.
    await client.aclose(close_connection_pool=True)


def _connection(url: RedisUrl) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "username": url.username,
        "password": url.password,
        "socket_timeout": COMMAND_TIMEOUT_S,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_keepalive": True,
        "health_check_interval": HEALTH_CHECK_S,
        "retry": Retry(NoBackoff(), 0),
        "client_name": "fmsg-mcpd",
        # Told by CLIENT SETINFO, which no server before 7.2 knows, and no ACL user of those can be allowed.
        "lib_name": None,
        "lib_version": None,
    }
    if url.tls:
        settings.update({name: url.options[name] for name in _PATHS if name in url.options})
        settings["ssl_check_hostname"] = url.options.get("ssl_check_hostname", "true").lower() not in (
            "false",
            "no",
            "0",
        )
    return settings


def shard_of(caller: CallerKey) -> int:
    """The shard of a caller, 0 … ``SHARDS - 1``."""
    return zlib.crc32(caller.encode()) % SHARDS


def by_shard(callers: Iterable[CallerKey]) -> dict[int, list[CallerKey]]:
    """The callers by their shard, each once."""
    found: dict[int, list[CallerKey]] = {}
    for caller in dict.fromkeys(callers):
        found.setdefault(shard_of(caller), []).append(caller)
    return found
