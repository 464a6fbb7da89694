"""The table of routes in docs/http.md, written from the OpenAPI document: `python tools/routes.py`.

The text between the two markers belongs to this file; a test compares it with what the service serves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import threadline
from threadline.service.app import build_app
from threadline.service.openapi.document import TAGS, build_document
from threadline.settings import Settings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "http.md"
START, END = "<!-- routes:start -->", "<!-- routes:end -->"


def with_table(text: str, described: dict[str, Any]) -> str:
    """The page with everything between the markers replaced."""
    before, _, rest = text.partition(START)
    return f"{before}{START}\n{table(described)}{END}{rest.partition(END)[2]}"


def table(described: dict[str, Any]) -> str:
    lines = ["| route | what |", "|---|---|"]
    for tag in TAGS:
        for path, methods in described["paths"].items():
            lines += [
                f"| `{method.upper()} {path}{_query(each)}` | {_what(described, each)} |"
                for method, each in methods.items()
                if tag in each["tags"]
            ]
    return "\n".join(lines) + "\n"


def _query(operation: dict[str, Any]) -> str:
    names = [each["name"] for each in operation["parameters"] if each["in"] == "query"]
    return f"?{'&'.join(names)}" if names else ""


def _what(described: dict[str, Any], operation: dict[str, Any]) -> str:
    summary: str = operation["summary"]
    keys = ", ".join(_body_keys(described, operation))
    told = f"{summary}: `{{{keys}}}`" if keys else summary
    return f"{told} (admin)" if operation.get("x-needs-role") == "admin" else told


def _body_keys(described: dict[str, Any], operation: dict[str, Any]) -> Iterator[str]:
    for content in operation.get("requestBody", {}).get("content", {}).values():
        name = content["schema"].get("$ref", "").rpartition("/")[2]
        schema = described["components"]["schemas"].get(name, {})
        needed = schema.get("required", ())
        yield from (key if key in needed else f"{key}?" for key in schema.get("properties", {}))
        return


async def served() -> dict[str, Any]:
    async with threadline.open(settings=Settings(database=":memory:")) as opened:
        return build_document(build_app(opened).routes)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), asyncio.run(served())), encoding="utf-8")
