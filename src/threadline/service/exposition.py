"""Metrics as Prometheus reads them: the text exposition format, version 0.0.4. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from threadline.observability.metrics import Family, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(families: Iterable[Family]) -> str:
    return "".join(_family(family) for family in families)


def _family(family: Family) -> str:
    head = f"# HELP {family.name} {_escaped(family.text)}\n# TYPE {family.name} {family.kind}\n"
    return head + "".join(_line(family.name, sample) for sample in family.samples)


def _line(name: str, sample: Sample) -> str:
    labels = ",".join(f'{key}="{_quoted(value)}"' for key, value in sample.labels)
    return f"{name}{sample.suffix}{'{' + labels + '}' if labels else ''} {_number(sample.value)}\n"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
