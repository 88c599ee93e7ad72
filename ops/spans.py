"""Spans as they leave the process, reduced to what is known to be harmless.

The SDK's middleware names spans after what a client sends, keeps its request id, and describes failures in the words
of an error, in which an address or a sentence of a message may stand. So nothing is taken on trust here: a name, value
or attribute that is not known beforehand is left out, as are events, links and the client's trace state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, Status

METHODS = frozenset(
    {
        "completion/complete",
        "initialize",
        "logging/setLevel",
        "notifications/cancelled",
        "notifications/initialized",
        "notifications/progress",
        "notifications/roots/list_changed",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "server/discover",
        "subscriptions/listen",
        "tools/call",
        "tools/list",
    }
)
"""What MCP clients may send; a client can send anything."""

OTHER = "other"
"""In place of a name that is not known."""

REQUEST_ID = "fmsg_mcpd.request_id"
"""The attribute with the id that log lines have, too."""

_VERSION = re.compile(r"\d{4}-\d\d-\d\d")
_CODE = re.compile(r"-?\d{1,6}")
_TYPE = re.compile(r"-?\d{1,6}|[A-Za-z_][\w.]{0,63}", re.ASCII)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}", re.ASCII)


class CleanSpans(SpanExporter):
    """Hands spans on to another exporter, without anything that comes from a client or a message.

    ``names`` are those of the tools and prompts there are.
    """

    def __init__(self, exporter: SpanExporter, *, names: frozenset[str]) -> None:
        self._exporter = exporter
        self._names = names
        self._attributes: Mapping[str, Callable[[str], str | None]] = {
            "mcp.method.name": lambda text: _known(text, METHODS),
            "mcp.protocol.version": lambda text: _matching(text, _VERSION),
            "gen_ai.operation.name": lambda text: _known(text, frozenset({"execute_tool"})),
            "gen_ai.tool.name": lambda text: _known(text, names),
            "gen_ai.prompt.name": lambda text: _known(text, names),
            "error.type": lambda text: _matching(text, _TYPE),
            "rpc.response.status_code": lambda text: _matching(text, _CODE),
            REQUEST_ID: lambda text: _matching(text, _REQUEST_ID),
        }

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._exporter.export([self.clean(span) for span in spans])

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def clean(self, span: ReadableSpan) -> ReadableSpan:
        """The span as it may leave the process."""
        method, _, target = span.name.partition(" ")
        words = [_known(method, METHODS), *([_known(target, self._names)] if target else [])]
        attributes: dict[str, str] = {}
        for name, value in (span.attributes or {}).items():
            cleaned = self._attributes[name](value) if name in self._attributes and isinstance(value, str) else None
            if cleaned is not None:
                attributes[name] = cleaned
        return ReadableSpan(
            name=" ".join(words),
            context=_without_state(span.context),
            parent=_without_state(span.parent),
            resource=span.resource,
            attributes=attributes,
            kind=span.kind,
            status=Status(span.status.status_code),
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=span.instrumentation_scope,
        )


def _known(text: str, names: frozenset[str]) -> str:
    return text if text in names else OTHER


def _matching(text: str, pattern: re.Pattern[str]) -> str | None:
    return text if pattern.fullmatch(text) else None


def _without_state(context: SpanContext | None) -> SpanContext | None:
    if context is None:
        return None
    return SpanContext(context.trace_id, context.span_id, context.is_remote, context.trace_flags)
