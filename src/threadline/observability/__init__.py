"""Metrics and traces: the registry, the spans of a turn, the OpenTelemetry exporter."""
