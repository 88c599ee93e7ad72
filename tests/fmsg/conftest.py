"""A fake host and clients of it."""

from __future__ import annotations

import datetime
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import settings

from fmsg.http import Deadlines, HostHttp
from fmsg.tokens import FixedTokens
from fmsg.webapi import WebApi
from tests.fmsg.fakehost import KEY, FakeHost, access_token, serve
from tests.key_tokens import KeyTokens

IMPATIENT = Deadlines(queue_s=0.4, connect_s=5.0, answer_s=0.4, idle_s=0.4, stored_s=0.4, upgrade_s=0.4)
"""For tests in which the host does not answer; those in which it does have the usual deadlines."""

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
# One slow example says something about the machine the tests share, and nothing about the code.


@pytest.fixture
async def host() -> AsyncIterator[FakeHost]:
    """A host with a token route and nothing else."""
    async with serve() as running:
        yield running


@pytest.fixture
async def http(host: FakeHost) -> AsyncIterator[HostHttp]:
    """A client with the usual deadlines."""
    async with HostHttp(host.url) as client:
        yield client


@pytest.fixture
async def impatient(host: FakeHost) -> AsyncIterator[HostHttp]:
    """A client that gives up after a fraction of a second."""
    async with HostHttp(host.url, deadlines=IMPATIENT) as client:
        yield client


@pytest.fixture
def api(http: HostHttp) -> WebApi:
    """The Web API with a key; the clock stands where the fake host's tokens are fresh."""
    return WebApi(http, KeyTokens(http, KEY, clock=lambda: 1_000.0))


@pytest.fixture
def fixed(http: HostHttp) -> WebApi:
    """The Web API with one given token."""
    return WebApi(http, FixedTokens(access_token(), clock=lambda: 1_000.0))


@pytest.fixture
def unused_port() -> int:
    """A port of this machine at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of localhost and api.a.test with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.DNSName("api.a.test")]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path
