"""Traces through OpenTelemetry: needs `threadline[otel]` and `tracing.enabled`.

Spans go to the program's tracer provider. If there is none, one is created here that exports them by OTLP over HTTP, as
OpenTelemetry's environment variables configure (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`, …).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind as Kind
from opentelemetry.trace import Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from threadline.ports import Span, SpanKind
from threadline.version import __version__

_KINDS: dict[SpanKind, Kind] = {"internal": Kind.INTERNAL, "server": Kind.SERVER, "client": Kind.CLIENT}
_PROPAGATOR = TraceContextTextMapPropagator()
_TRACE_HEADERS = frozenset(("traceparent", "tracestate"))


class OtelSpan:
    def __init__(self, span: trace.Span) -> None:
        self.span = span

    def set(self, name: str, value: Any) -> None:
        self.span.set_attribute(name, value)

    def rename(self, name: str) -> None:
        self.span.update_name(name)

    def end(self, error: str | None = None) -> None:
        if error is not None:
            self.span.set_attribute("error.type", error)
            self.span.set_status(Status(StatusCode.ERROR))
        self.span.end()


class OtelTracer:
    def __init__(self, provider: trace.TracerProvider, *, owned: TracerProvider | None = None) -> None:
        """`owned` is shut down with this tracer; the program's own provider is not."""
        self._tracer = provider.get_tracer(_NAME, __version__)
        self._owned = owned

    @classmethod
    def open(cls) -> OtelTracer:
        found = trace.get_tracer_provider()
        if not isinstance(found, trace.ProxyTracerProvider):
            return cls(found)
        # Imported here: the exporter loads an HTTP client, which a program with its own provider does not need.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        owned = TracerProvider(shutdown_on_exit=False)
        owned.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return cls(owned, owned=owned)

    def span(
        self,
        name: str,
        attributes: Mapping[str, Any],
        *,
        parent: Span | None = None,
        kind: SpanKind = "internal",
        headers: Mapping[str, str] | None = None,
    ) -> OtelSpan:
        around = Context()
        if isinstance(parent, OtelSpan):
            around = trace.set_span_in_context(parent.span, around)
        elif headers is not None:
            carried = {key: value for key, value in headers.items() if key in _TRACE_HEADERS}
            around = _PROPAGATOR.extract(carried, around)
        return OtelSpan(self._tracer.start_span(name, around, kind=_KINDS[kind], attributes=dict(attributes)))

    async def close(self) -> None:
        if self._owned is not None:
            await asyncio.to_thread(self._owned.shutdown)


_NAME = "threadline"
