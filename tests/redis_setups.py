"""Redis in the shapes that operators run: behind TLS, watched by Sentinels, as a Cluster."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import redis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ledger.embedded import EmbeddedRedis, free_port

SLOTS = 16_384
"""Hash slots of a Redis Cluster."""


def self_signed(directory: Path, *, name: str | None = "127.0.0.1") -> tuple[Path, ssl.SSLContext]:
    """A certificate for an address (None: for nobody), which is its own CA: its path and a server's context with it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "redis of a test")])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    if name is not None:
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(name))])
        builder = builder.add_extension(names, critical=False)
    certificate = directory / "certificate.pem"
    certificate.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    secret = directory / "key.pem"
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, secret)
    return certificate, context


@asynccontextmanager
async def tls_in_front(port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
    """A port that ends TLS and passes everything on: servers out of Python packages know no TLS."""
    writers: set[asyncio.StreamWriter] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
        writers.update((writer, back_writer))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(copy(reader, back_writer))
            tasks.create_task(copy(back_reader, writer))

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]
        for writer in writers:
            writer.close()


class Watched:
    """A primary, its replica and the Sentinel that watches them."""

    def __init__(self, primary: EmbeddedRedis, replica: EmbeddedRedis, sentinel: EmbeddedRedis) -> None:
        self.primary = primary
        self.replica = replica
        self.sentinel = sentinel

    @property
    def url(self) -> str:
        """Where clients ask."""
        return (
            f"redis+sentinel://:{self.primary.password}@127.0.0.1:{self.sentinel.port}/ledgers"
            f"?sentinel_password={self.sentinel.password}"
        )


@asynccontextmanager
async def watched(program: Path | None = None) -> AsyncIterator[Watched]:
    """Start a `Watched`; the Sentinel knows both servers when the context is entered."""
    async with AsyncExitStack() as stack:
        password = "a-password-of-both"
        primary = await stack.enter_async_context(
            EmbeddedRedis(program=program, password=password, config=[f"masterauth {password}"])
        )
        replica = await stack.enter_async_context(
            EmbeddedRedis(
                program=program,
                password=password,
                config=[f"masterauth {password}", f"replicaof 127.0.0.1 {primary.port}", "repl-diskless-sync-delay 0"],
            )
        )
        await until_info(replica, "master_link_status", "up")
        sentinel = await stack.enter_async_context(
            EmbeddedRedis(
                program=program,
                sentinel=True,
                config=[
                    f"sentinel monitor ledgers 127.0.0.1 {primary.port} 1",
                    f"sentinel auth-pass ledgers {password}",
                    "sentinel down-after-milliseconds ledgers 300",
                    "sentinel failover-timeout ledgers 3000",
                ],
            )
        )
        await until_info(sentinel, "master0", None, holds="slaves=1")
        yield Watched(primary, replica, sentinel)


@asynccontextmanager
async def cluster(size: int = 3, *, program: Path | None = None) -> AsyncIterator[Sequence[EmbeddedRedis]]:
    """Primaries that share the slots evenly and agree on it."""
    async with AsyncExitStack() as stack:
        nodes = []
        for _ in range(size):
            node = EmbeddedRedis(
                program=program,
                port=free_port(),
                password="a-password-of-all",
                persist=True,
                config=["cluster-enabled yes", "cluster-node-timeout 1000", "cluster-require-full-coverage no"],
            )
            nodes.append(await stack.enter_async_context(node))
        for number, node in enumerate(nodes):
            with redis.Redis.from_url(node.url) as client:
                slots = range(number * SLOTS // size, (number + 1) * SLOTS // size)
                client.execute_command("CLUSTER ADDSLOTS", *slots)
                for other in nodes:
                    client.execute_command("CLUSTER MEET", "127.0.0.1", other.port)
        for node in nodes:
            await until_cluster(node, size)
        yield nodes


async def until_info(server: EmbeddedRedis, field: str, value: str | None, *, holds: str = "") -> None:
    """Wait until a field of INFO has a value, or holds a text."""
    with redis.Redis.from_url(server.url) as client:
        while True:
            found = client.info().get(field)
            if (value is not None and found == value) or (holds and holds in _flat(found)):
                return
            await asyncio.sleep(0.02)


async def until_cluster(node: EmbeddedRedis, size: int) -> None:
    """Wait until a node sees all slots served by as many primaries."""
    with redis.Redis.from_url(node.url) as client:
        while True:
            found = client.execute_command("CLUSTER INFO")
            if (
                found["cluster_state"] == "ok"
                and found["cluster_slots_ok"] == str(SLOTS)
                and found["cluster_size"] == str(size)
            ):
                return
            await asyncio.sleep(0.02)


def _flat(value: object) -> str:
    return ",".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
