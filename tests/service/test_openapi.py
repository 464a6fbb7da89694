"""The OpenAPI document: it lists every route, its examples work, and responses match their schemas."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from starlette.routing import Route

from tests.service.running_service import THREADS, Client
from threadline.bootstrap import Threadline
from threadline.service import app as app_
from threadline.service.app import build_app
from threadline.service.openapi.document import PATH, build_document, public_path
from threadline.service.openapi.reference import render
from tools import routes

SOURCE = Path(app_.__file__).parent
RAISED = re.compile(r"\b(?:Problem|Fault)\(\s*(\d{3}), \"(\w+)\"")


@pytest.fixture
def made(threadline: Threadline) -> dict[str, Any]:
    return build_document(build_app(threadline).routes)


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, each) for path, methods in document["paths"].items() for method, each in methods.items()]


def test_the_document_lists_exactly_the_routes(threadline: Threadline, made: dict[str, Any]) -> None:
    """A route without a description: put `@operation(…)` of `service/openapi/operation.py` above its handler."""
    served = {
        (public_path(route.path), method)
        for route in build_app(threadline).routes
        if isinstance(route, Route)
        for method in route.methods or {"GET"}
    }
    assert {(path, method.upper()) for path, method, _ in operations(made)} == {
        (path, method) for path, method in served if method != "HEAD"
    }


def test_the_route_table_in_the_docs_is_current(made: dict[str, Any]) -> None:
    """Otherwise: `.venv/bin/python tools/routes.py`."""
    text = routes.PAGE.read_text(encoding="utf-8")
    assert routes.with_table(text, made) == text


async def test_the_document_and_the_page_are_served(client: Client) -> None:
    answer = await client.http.get("/openapi.json")
    assert (answer.status_code, answer.json()["openapi"]) == (200, "3.1.0")
    page = await client.http.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for path, method, each in operations(answer.json()):
        assert f"<b>{method.upper()}</b> <code>{path}</code>" in page.text
        assert f'id="{each["operationId"]}"' in page.text


async def test_the_reference_page_loads_no_resources_and_no_scripts(client: Client) -> None:
    page = (await client.http.get("/docs")).text
    assert not re.search(r"<script|<link|<img|<iframe|https?://|\bon\w+=|javascript:", page)


def test_the_links_of_the_reference_page_have_targets(made: dict[str, Any]) -> None:
    page = render(made)
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(re.findall(r'id="([^"]+)"', page))


def test_every_error_that_the_service_raises_is_in_the_document(made: dict[str, Any]) -> None:
    raised = {found for file in SOURCE.rglob("*.py") for found in RAISED.findall(file.read_text(encoding="utf-8"))}
    told = {
        (status, code)
        for _, _, each in operations(made)
        for status, answer in each["responses"].items()
        for code in re.findall(r"\w+", answer["description"].partition(": ")[2])
    }
    assert raised - told == set()


def test_an_operation_has_one_id_and_links_lead_to_operations(made: dict[str, Any]) -> None:
    ids = [each["operationId"] for _, _, each in operations(made)]
    assert len(ids) == len(set(ids))
    by_id = {
        each["operationId"]: {parameter["name"] for parameter in each["parameters"]} for _, _, each in operations(made)
    }
    for _, _, each in operations(made):
        for answer in each["responses"].values():
            for link in answer.get("links", {}).values():
                assert link["parameters"].keys() <= by_id[link["operationId"]]


OF_PLATFORMS = frozenset(
    ("receiveWebhook", "verifyWebhook", "requeueDelivery", "putCredentials", "removeLink", "redeemLinkCode", "eraseMe")
)
"""They need a platform; tests/messaging has fake platforms and calls them there. Erasing the caller would leave nothing
to ask for; tests/service/test_users.py does it."""
OF_AUTHENTICATION = frozenset(("openSignInLink",))
"""This service has no authentication; tests/service/test_sign_in.py does."""


OF_SCENE = (
    "token_id", "message_id", "response_id", "turn_id", "hold_id", "sign_in_id", "conversation_id", "item_id",
)  # fmt: skip


async def set_the_scene(client: Client) -> dict[str, Any]:
    """Creates what the examples refer to: a thread with two turns, a saved point, an agent, a context, a token."""
    await client.ask("What is there to see?", "lisbon")
    await client.ask("And on Sunday?", "lisbon")
    for path, body in (
        ("/api/v1/ai/saves/before the trip", {"stateKey": "lisbon", "at": 1}),
        ("/api/v1/agents", {"id": "concierge", "provider": "rehearsal"}),
        ("/api/v1/agents/rehearsal/context", {"context": "I walk a lot."}),
        (f"{THREADS}/lisbon/compact", {"budget": 1}),
    ):
        answer = await client.http.request("PUT" if "saves" in path else "POST", path, json=body)
        assert answer.is_success, answer.text
    token = (await client.http.post("/api/v1/tokens", json={"user": "ada"})).json()["token"]
    hold = (await client.http.post("/api/v1/holds", json={"reason": "case 17", "user": "ada"})).json()
    link = (await client.http.post("/api/v1/sign-ins/links", json={"user": "local"})).json()
    gone = await client.http.post(f"{THREADS}/lisbon/branch", json={"stateKey": "gone"})
    await client.http.delete(f"{THREADS}/gone")
    timelines = (await client.http.get(f"{THREADS}/lisbon/timelines")).json()["timelines"]
    messages = (await client.http.get(f"{THREADS}/lisbon/messages")).json()["messages"]
    conversation = await client.http.post("/v1/conversations", json={"items": [{"role": "user", "content": "Hi"}]})
    conversation_id = conversation.json()["id"]
    items = await client.http.get(f"/v1/conversations/{conversation_id}/items")
    return {
        PATH["conversation_id"].example: conversation_id,
        PATH["item_id"].example: items.json()["first_id"],
        "a timeline of this thread": timelines[0]["id"],
        "a deleted thread": gone.json()["id"],
        PATH["token_id"].example: token["id"],
        PATH["message_id"].example: messages[0]["id"],
        PATH["turn_id"].example: messages[0]["turnId"],
        PATH["hold_id"].example: hold["id"],
        PATH["sign_in_id"].example: link["id"],
        PATH["response_id"].example: f"resp_{messages[0]['turnId']}",
    }


async def test_every_example_succeeds_and_matches_its_schema(threadline: Threadline, client: Client) -> None:
    standing = await set_the_scene(client)
    made = (await client.http.get("/openapi.json")).json()
    lines = (await client.http.get(f"{THREADS}/lisbon/export")).content
    # What deletes comes last, so that the rest has something to speak of.
    for path, method, each in sorted(
        operations(made), key=lambda found: (found[1] == "delete", found[2]["operationId"] == "deleteConversation")
    ):
        if each["operationId"] in OF_PLATFORMS | OF_AUTHENTICATION:
            continue
        for body in bodies(each, standing) or [lines if each["operationId"] == "importThreads" else None]:
            url = path.format(**{p["name"]: p["example"] for p in each["parameters"] if p["in"] == "path"})
            for name in OF_SCENE:
                url = url.replace(PATH[name].example, standing[PATH[name].example])
            sent: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body}
            if each["operationId"] == "searchThreads":
                url += "?q=hello"
            headers = {"content-type": "application/x-ndjson"} if isinstance(body, bytes) else {}
            answer = await client.http.request(method, url, headers=headers, **({} if body is None else sent))
            assert answer.status_code < 300, (each["operationId"], body, answer.text)
            check(made, each, answer.status_code, answer.headers.get("content-type"), answer.content)


def bodies(operation: dict[str, Any], standing: dict[str, Any]) -> list[Any]:
    for content in operation.get("requestBody", {}).get("content", {}).values():
        shown = json.dumps([example["value"] for example in content.get("examples", {}).values()])
        for name, value in standing.items():
            shown = shown.replace(name, value)
        return list(json.loads(shown))
    return []


def check(document: dict[str, Any], operation: dict[str, Any], status: int, media: str | None, body: bytes) -> None:
    """A response has a declared status, media type and schema."""
    named = operation["responses"][str(status)]
    if not body:
        assert "content" not in named
        return
    schema = named["content"][media]["schema"]
    validator = jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]})
    for value in values(media or "", body) if schema != {"type": "string"} else [body.decode()]:
        validator.validate(value)


def values(media: str, body: bytes) -> list[Any]:
    """The values that a schema describes: the whole JSON body, or each event of a stream."""
    if media != "text/event-stream":
        return [json.loads(body)]
    frames = [frame for frame in body.decode().split("\n\n") if frame and not frame.startswith(":")]
    return [dict(line.split(": ", 1) for line in frame.splitlines()) for frame in frames]


async def test_problems_match_their_schema(client: Client) -> None:
    made = (await client.http.get("/openapi.json")).json()
    for method, url, path in (
        ("get", f"{THREADS}?limit=0", THREADS),
        ("post", f"{THREADS}/nothing/undo", THREADS + "/{stateKey}/undo"),
        ("get", "/api/v1/agents/unknown/context", "/api/v1/agents/{agentId}/context"),
    ):
        answer = await client.http.request(method, url)
        assert answer.headers["content-type"] == "application/problem+json"
        check(made, made["paths"][path][method], answer.status_code, answer.headers["content-type"], answer.content)


def with_wrong_text(path: str, operation: dict[str, Any]) -> list[tuple[str, bytes | None]]:
    """Requests with text that no database holds, in each place of the operation that takes text."""
    given = {p["name"]: p["example"] for p in operation["parameters"] if p["in"] == "path"}
    whole = path.format(**given)
    found: list[tuple[str, bytes | None]] = [(path.format(**given | {name: "%00"}), None) for name in given]
    found += [(f"{whole}?{p['name']}=%00", None) for p in operation["parameters"] if p["in"] == "query"]
    if "requestBody" in operation:
        found += [(whole, b'{"a":"%s"}' % wrong) for wrong in (rb"\u0000", rb"\ud800")]
        for example in bodies(operation, {}):
            blanks = {name: " " if isinstance(value, str) else value for name, value in example.items()}
            found.append((whole, json.dumps(blanks).encode()))
    return found


@pytest.mark.req("R-06")
async def test_text_that_cannot_be_stored_is_refused_as_the_document_says(client: Client) -> None:
    await set_the_scene(client)
    made = (await client.http.get("/openapi.json")).json()
    refused = 0
    for path, method, each in sorted(
        operations(made), key=lambda found: (found[1] == "delete", found[2]["operationId"] == "deleteConversation")
    ):
        for url, body in with_wrong_text(path, each):
            media = next(iter(each.get("requestBody", {}).get("content", {})), "application/json")
            answer = await client.http.request(method, url, content=body, headers={"content-type": media})
            check(made, each, answer.status_code, answer.headers.get("content-type"), answer.content)
            refused += answer.status_code == 400
    assert refused > 100
