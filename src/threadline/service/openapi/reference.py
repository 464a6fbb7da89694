"""The API reference: `/openapi.json` for programs, `/docs` for people.

Both come from one document, generated on the first request. The page is self-contained and has no script, because the
content security policy allows neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from html import escape
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from threadline.service.http.responses import json_response
from threadline.service.openapi.document import build_document
from threadline.service.openapi.operation import ResponseSpec, operation

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Threadline API</title>
<style>
  :root {{ color-scheme: light dark; }}
  body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
  code, pre {{ font: 14px/1.45 ui-monospace, monospace; }}
  pre {{ background: #8881; padding: .75rem 1rem; border-radius: .4rem; overflow-x: auto; }}
  details {{ border: 1px solid #8884; border-radius: .4rem; margin: .5rem 0; padding: .4rem .8rem; }}
  summary {{ cursor: pointer; }}
  summary b {{ display: inline-block; min-width: 4.5rem; }}
  table {{ border-collapse: collapse; width: 100%; margin: .5rem 0; }}
  td, th {{ text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #8883; }}
  nav a {{ margin-right: 1rem; }}
</style>
<h1>{title} API {version}</h1>
{introduction}
<p>For programs: <a href="openapi.json">openapi.json</a> (OpenAPI 3.1).</p>
<nav aria-label="Groups">{groups}</nav>
<main>
{sections}
<section id="schemas">
<h2>Schemas</h2>
{schemas}
</section>
</main>
</html>
"""


class ReferenceRoutes:
    """Describes `routes` and its own."""

    def __init__(self, routes: Sequence[BaseRoute], *, is_authenticated: bool) -> None:
        self._all_routes = [*routes, *self.routes()]
        self._is_authenticated = is_authenticated

    def routes(self) -> list[Route]:
        return [
            Route("/openapi.json", self.read_document, methods=["GET"]),
            Route("/docs", self.read_page, methods=["GET"]),
        ]

    @operation(
        "openapi",
        "Read the OpenAPI document",
        ResponseSpec(200, "The OpenAPI document.", dict[str, Any]),
        tag="operations",
    )
    async def read_document(self, request: Request) -> Response:
        root = request.scope.get("root_path") or "/"
        return json_response({**self._document, "servers": [{"url": root}]})

    @operation(
        "docs",
        "Read the API reference as a page",
        ResponseSpec(200, "An HTML page.", str, media_types=("text/html; charset=utf-8",)),
        tag="operations",
    )
    async def read_page(self, request: Request) -> Response:
        return HTMLResponse(self._page)

    @cached_property
    def _document(self) -> dict[str, Any]:
        return build_document(self._all_routes, is_authenticated=self._is_authenticated)

    @cached_property
    def _page(self) -> str:
        return render(self._document)


def render(document: dict[str, Any]) -> str:
    info, tags = document["info"], document["tags"]
    by_tag = {tag["name"]: "\n".join(_operations(document, tag["name"])) for tag in tags}
    used = [tag for tag in tags if by_tag[tag["name"]]]
    return _PAGE.format(
        title=escape(info["title"]),
        version=escape(info["version"]),
        introduction="\n".join(f"<p>{escape(text)}</p>" for text in info["description"].split("\n\n")),
        groups="".join(f'<a href="#{name}">{name}</a>' for name in (*(tag["name"] for tag in used), "schemas")),
        sections="\n".join(
            f'<section id="{tag["name"]}">\n<h2>{tag["name"]}</h2>\n<p>{escape(tag["description"])}</p>\n'
            f"{by_tag[tag['name']]}\n</section>"
            for tag in used
        ),
        schemas="\n".join(_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items())),
    )


def _operations(document: dict[str, Any], tag: str) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            if tag in described["tags"]:
                yield _operation(path, method, described)


def _operation(path: str, method: str, described: dict[str, Any]) -> str:
    head = f"<b>{method.upper()}</b> <code>{escape(path)}</code> {escape(described['summary'])}"
    text = f"<p>{escape(described['description'])}</p>" if "description" in described else ""
    if "x-needs-role" in described:
        text += f"<p>Requires the role {escape(described['x-needs-role'])} or higher.</p>"
    return (
        f'<details id="{escape(described["operationId"])}"><summary>{head}</summary>\n{text}'
        f"{_parameters(described['parameters'])}{_body(described.get('requestBody'))}{_responses(described['responses'])}"
        "</details>"
    )


def _parameters(parameters: list[dict[str, Any]]) -> str:
    if not parameters:
        return ""
    rows = (
        (f"<code>{escape(each['name'])}</code>", each["in"], _type(each["schema"]), escape(each.get("description", "")))
        for each in parameters
    )
    return _table(("Parameter", "in", "type", ""), rows)


def _body(body: dict[str, Any] | None) -> str:
    if body is None:
        return ""
    content = next(iter(body["content"].values()))
    html = f"<p>Body ({', '.join(map(escape, body['content']))}): {_type(content['schema'])}</p>\n"
    for name, example in content.get("examples", {}).items():
        html += f"<p>{escape(name)}:</p>\n<pre>{_json(example['value'])}</pre>\n"
    return html


def _responses(responses: dict[str, Any]) -> str:
    rows = []
    for status, each in responses.items():
        types = {_type(content["schema"]) for content in each.get("content", {}).values()}
        rows.append((status, ", ".join(types), escape(each["description"])))
    return _table(("Status", "type", ""), rows)


def _table(head: Sequence[str], rows: Any) -> str:
    titles = "".join(f"<th scope='col'>{title}</th>" for title in head)
    lines = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>\n<tr>{titles}</tr>\n{lines}\n</table>\n"


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words; a named one as a link to its section."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#schema-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"<code>{escape(str(each))}</code>" for each in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return escape(str(schema.get("type", "anything")))


def _schema(name: str, schema: dict[str, Any]) -> str:
    text = f"<p>{escape(schema['description'])}</p>" if "description" in schema else ""
    required = schema.get("required", ())
    rows = (
        (f"<code>{escape(key)}</code>", _type(field), "" if key in required else "optional")
        for key, field in schema.get("properties", {}).items()
    )
    return f'<details id="schema-{name}"><summary>{name}</summary>\n{text}{_table(("Key", "type", ""), rows)}</details>'


def _json(value: Any) -> str:
    return escape(msgspec.json.format(msgspec.json.encode(value), indent=2).decode(), quote=False)
