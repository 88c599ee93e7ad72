"""`ops.spans`: whatever the SDK's middleware and its clients put into a span, nothing of it gets out that may not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from ops.spans import OTHER, REQUEST_ID, CleanSpans
from tests.mcp_front.fakes import FakeToolbox
from tests.mcp_front.test_server import server

SECRET = "fmsgk_c2VjcmV0LXNlY3JldC1zZWNyZXQ"
ADDRESS = "@ann@a.test"
MODES = ("legacy", "2026-07-28")
NAMES = frozenset({"who", "fail", "upstream", "chat"})


class Spans:
    """What was exported, cleaned."""

    def __init__(self) -> None:
        self.kept = InMemorySpanExporter()
        self.clean = CleanSpans(self.kept, names=NAMES)
        self.provider = TracerProvider(resource=Resource({"service.name": "test"}), shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.clean))

    def of_server(self) -> list[ReadableSpan]:
        """The spans of the server; the client of the test is in the same process and has some, too."""
        return [span for span in self.kept.get_finished_spans() if span.kind == SpanKind.SERVER]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Every span of the SDK, as it would leave the process."""
    found = Spans()
    monkeypatch.setattr("mcp.shared._otel._tracer", found.provider.get_tracer("mcp-python-sdk"))
    yield found
    found.provider.shutdown()


@pytest.mark.parametrize("mode", MODES)
async def test_a_request_has_a_span_that_says_what_kind_it_was(mode: str, spans: Spans) -> None:
    async with Client(server(traced=True), mode=mode) as client:
        await client.call_tool("who", {"secret": SECRET})
    (span,) = [span for span in spans.of_server() if span.name.startswith("tools/call")]
    assert span.name == "tools/call who"
    assert span.attributes is not None
    assert dict(span.attributes) == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": span.attributes["mcp.protocol.version"],
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "who",
        REQUEST_ID: "r-1",
    }
    assert span.resource.attributes["service.name"] == "test"
    assert span.end_time is not None


@pytest.mark.parametrize("mode", MODES)
async def test_nothing_that_a_client_or_an_error_says_is_in_a_span(mode: str, spans: Spans) -> None:
    error = RuntimeError(f"{ADDRESS} wrote {SECRET}")
    async with Client(server(toolbox=FakeToolbox(error), traced=True), mode=mode) as client:
        with pytest.raises(MCPError):
            await client.call_tool(f"{ADDRESS} {SECRET}", {})
        await client.call_tool("upstream", {"to": ADDRESS})
        with pytest.raises(MCPError):
            await client.read_resource(f"fmsg://message/{SECRET}")
        with pytest.raises(MCPError):
            await client.get_prompt(SECRET)
    told = spans.of_server()
    assert {"tools/call other", "tools/call upstream", "resources/read", "prompts/get other"} <= {
        span.name for span in told
    }
    for span in told:
        assert SECRET not in span.to_json()
        assert "@" not in span.to_json()
        assert not span.events
        assert span.status.description is None
    failed = {span.name for span in told if span.status.status_code is StatusCode.ERROR}
    assert {"tools/call other", "tools/call upstream", "resources/read", "prompts/get other"} <= failed


def test_only_what_is_known_is_left_of_a_span(spans: Spans) -> None:
    tracer = spans.provider.get_tracer("mcp-python-sdk")
    with tracer.start_as_current_span(
        f"{SECRET} {ADDRESS}",
        kind=SpanKind.SERVER,
        attributes={
            "mcp.method.name": SECRET,
            "mcp.protocol.version": SECRET,
            "gen_ai.tool.name": ADDRESS,
            "gen_ai.prompt.name": "chat",
            "jsonrpc.request.id": SECRET,
            "error.type": ADDRESS,
            "rpc.response.status_code": "-32602",
            "mine": SECRET,
            REQUEST_ID: "a b",
        },
    ) as span:
        span.add_event(SECRET, {"exception.message": ADDRESS})
        span.record_exception(ValueError(SECRET))
    (cleaned,) = spans.kept.get_finished_spans()
    assert cleaned.name == f"{OTHER} {OTHER}"
    assert dict(cleaned.attributes or {}) == {
        "mcp.method.name": OTHER,
        "gen_ai.tool.name": OTHER,
        "gen_ai.prompt.name": "chat",
        "rpc.response.status_code": "-32602",
    }
    assert SECRET not in cleaned.to_json()


async def test_a_clients_trace_goes_on_without_its_state(spans: Spans) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    meta = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01", "tracestate": f"vendor={SECRET}"}
    async with Client(server(traced=True), mode="2026-07-28") as client:
        await client.call_tool("who", {}, meta=meta)  # type: ignore[arg-type]  # any metadata
    (span,) = [span for span in spans.of_server() if span.name == "tools/call who"]
    assert span.context is not None
    assert span.parent is not None
    assert not span.parent.trace_state
    assert not span.context.trace_state
    assert SECRET not in span.to_json()


async def test_without_anybody_who_takes_them_there_are_none(spans: Spans) -> None:
    async with Client(server(), mode="2026-07-28") as client:
        await client.call_tool("who", {})
    assert spans.of_server() == []
