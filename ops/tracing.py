"""OpenTelemetry traces of the MCP requests a front serves, where the standard variables name a collector.

Off, nothing of OpenTelemetry's SDK is imported and the front leaves the MCP SDK's tracing out. The variables are those
of OpenTelemetry; what this module reads of them itself is below, the exporter and the sampler read the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from ops.version import version

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Either of them asks for traces."""

PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

SPOKEN = "http/protobuf"
"""The protocol of the exporter of the `tracing` extra, and OpenTelemetry's default."""

PACKAGES = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")
"""What the `tracing` extra brings."""

SERVICE = "fmsg-mcpd"
"""The service's name, unless ``OTEL_SERVICE_NAME`` or ``OTEL_RESOURCE_ATTRIBUTES`` has another one."""

LAST_S = 3.0
"""How long a process that ends waits for its last spans to get out. A collector that is away delays no stop."""


class NoTraces(Exception):
    """Traces are asked for and cannot be made. The text says why and what to do."""


def wanted(environ: Mapping[str, str]) -> bool:
    """Whether the variables ask for traces. Raises `NoTraces`."""
    named = next((name for name in ENDPOINTS if environ.get(name, "").strip()), None)
    if named is None or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if environ.get("OTEL_TRACES_EXPORTER", "").strip() == "none":
        return False
    protocol = next((environ[name].strip() for name in PROTOCOLS if environ.get(name, "").strip()), SPOKEN)
    if protocol != SPOKEN:
        raise NoTraces(
            f"{named} is set, but OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r} and only {SPOKEN} is spoken here. "
            "Give the collector's port for it, usually 4318, and unset the protocol."
        )
    if not all(map(_is_installed, PACKAGES)):
        raise NoTraces(
            f"{named} is set, but what exports traces is not installed. Install the extra "
            "`tracing`: pip install '.[tracing]'."
        )
    return True


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


@contextlib.asynccontextmanager
async def running(environ: Mapping[str, str] | None = None) -> AsyncIterator[bool]:
    """Export traces while the context is open, if they are asked for. Gives whether they are."""
    try:
        if not wanted(os.environ if environ is None else environ):
            yield False
            return
        provider = _provide()
    except NoTraces as error:
        log.warning(str(error), extra={"action": "no_traces"})
        yield False
        return
    log.info("traces are exported", extra={"action": "traces_on"})
    try:
        yield True
    finally:
        await _stop(provider)


def _provide() -> TracerProvider:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        raise NoTraces(
            "Traces: something else in this process provides them already, so what it exports cannot be kept free of "
            "addresses and contents. Start fmsg-mcpd without it; OTEL_EXPORTER_OTLP_ENDPOINT is enough."
        )
    provider = provider_of(OTLPSpanExporter())
    trace.set_tracer_provider(provider)
    return provider


def provider_of(exporter: SpanExporter) -> TracerProvider:
    """What makes spans and gives them to the exporter, cleaned."""
    from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from mcp_front.prompts import prompts
    from mcp_front.settings import FrontSettings
    from mcp_front.tools.registry import tools_for
    from ops.spans import CleanSpans

    names = {*tools_for(FrontSettings()), *(prompt.name for prompt in prompts())}
    ours = Resource({SERVICE_VERSION: version(), SERVICE_INSTANCE_ID: f"{socket.gethostname()}-{os.getpid()}"})
    theirs = Resource.create()
    if str(theirs.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        ours = ours.merge(Resource({SERVICE_NAME: SERVICE}))
    # Not ended by an exit handler, which would wait for half a minute for a collector that is away.
    provider = TracerProvider(resource=theirs.merge(ours), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(CleanSpans(exporter, names=frozenset(names))))
    return provider


async def _stop(provider: TracerProvider) -> None:
    # A daemon thread: the end of the process would wait for one of asyncio's.
    last = threading.Thread(target=provider.shutdown, name="last-spans", daemon=True)
    last.start()
    await asyncio.to_thread(last.join, LAST_S)
