"""`ops.tracing`: when there are traces, and what a real front sends to a real collector."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ledger.embedded import free_port
from mcp_front.settings import FrontSettings
from mcp_front.tools.registry import tools_for
from ops.agent import ToolFailed, over_http
from ops.processes import Child
from ops.tracing import LAST_S, NoTraces, provider_of, running, wanted
from sandbox.host import SandboxHost, serve
from tests.within import within

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
WITHIN_S = 30.0


@pytest.mark.parametrize(
    ("environ", "are"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "True"}, False),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_the_standard_variables_ask_for_traces(environ: dict[str, str], are: bool) -> None:
    assert wanted(environ) is are


def test_a_protocol_that_is_not_spoken_is_told() -> None:
    with pytest.raises(NoTraces, match="usually 4318"):
        wanted({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})


async def test_what_is_missing_is_named_and_the_front_runs_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ops.tracing.PACKAGES", ("opentelemetry.not_there.at_all",))
    async with running(ENDPOINT) as traced:
        assert not traced
    (record,) = [record for record in caplog.records if getattr(record, "action", "") == "no_traces"]
    assert "pip install '.[tracing]'" in record.getMessage()


async def test_it_is_off_where_nobody_asks() -> None:
    async with running({}) as traced:
        assert not traced


@pytest.mark.parametrize(("named", "name"), [("", "fmsg-mcpd"), ("mail", "mail")])
def test_the_service_has_a_name(named: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", named)
    provider = provider_of(InMemorySpanExporter())
    assert provider.resource.attributes["service.name"] == name
    assert provider.resource.attributes["service.version"]
    provider.shutdown()


class Collector:
    """Takes what is exported."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[bytes] = []

    async def take(self, request: web.Request) -> web.Response:
        """See OTLP over HTTP."""
        self.bodies.append(await request.read())
        return web.Response(content_type="application/x-protobuf")

    def names(self) -> set[str]:
        """The names of all spans."""
        return {
            span.name
            for body in self.bodies
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        }


@contextlib.asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """A collector on a port."""
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def up(api_url: str, log_dir: Path, **env: str) -> AsyncIterator[tuple[Child, str]]:
    """`fmsg-mcpd up`, and the URL it serves."""
    settings = {"FMSG_API_URL": api_url, "FMSG_MCP_PORT": "0", **env}
    child = await Child.start("up", "up", env=settings, log_dir=log_dir)
    try:
        (told,) = await child.announcement("mcp_url")
        yield child, told["mcp_url"]
    finally:
        await child.stop()


@pytest.mark.processes
async def test_a_collector_sees_what_was_done_and_nothing_of_what_was_said(tmp_path: Path) -> None:
    host = SandboxHost("here.test")
    key = host.control.create_key("@ann@here.test")
    host.control.deliver("@eve@here.test", ["@ann@here.test"], topic="the topic", body="the body")
    async with collecting() as collector, serve(host) as api_url:
        async with (
            up(api_url, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url) as (_, url),
            over_http(url, key) as ann,
        ):
            await ann.call("whoami")
            listed = await ann.call("list_messages")
            await ann.call("get_message", id=listed["messages"][0]["id"])
            await ann.call("send_message", to=["@eve@here.test"], body="the answer", topic="my topic")
            with pytest.raises(ToolFailed):
                await ann.call("send_message", to=["@nobody@nowhere@here.test"], body="the answer")
        # The process has ended: what it had is out.
        names, told = collector.names(), b"".join(collector.bodies)
    assert {
        "tools/call whoami",
        "tools/call list_messages",
        "tools/call get_message",
        "tools/call send_message",
    } <= names
    for text in ("@here", "here.test", "eve", "the body", "the topic", "the answer", "my topic", key):
        assert text.encode() not in told, text


@pytest.mark.processes
async def test_a_collector_that_is_away_keeps_nobody(tmp_path: Path) -> None:
    host = SandboxHost("here.test")
    key = host.control.create_key("@ann@here.test")
    endpoint = f"http://127.0.0.1:{free_port()}"
    async with serve(host) as api_url, up(api_url, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint) as (child, url):
        async with over_http(url, key) as ann:
            assert (await ann.call("whoami"))["address"] == "@ann@here.test"
        began_s = time.monotonic()
        assert await within(child.stop(), WITHIN_S) == 0
        assert time.monotonic() - began_s < LAST_S + 5.0


def test_every_name_that_may_be_seen_is_a_tool_or_a_prompt() -> None:
    provider = provider_of(exporter := InMemorySpanExporter())
    with provider.get_tracer("test").start_as_current_span("tools/call wait_for_message"):
        pass
    provider.force_flush()
    (span,) = exporter.get_finished_spans()
    assert span.name == "tools/call wait_for_message"
    assert "wait_for_message" in tools_for(FrontSettings())
    provider.shutdown()
