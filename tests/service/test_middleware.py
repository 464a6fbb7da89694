"""Middleware and problems: body limits, origins, host names, security headers, error responses."""

from __future__ import annotations

import asyncio
import inspect
import socket

import pytest
from starlette.requests import Request

from tests.service.running_service import CHAT, THREADS, Client
from threadline.bootstrap import Threadline
from threadline.core import errors
from threadline.core.errors import SettingsInvalid, ThreadlineError
from threadline.service.auth.authentication import check_address
from threadline.service.http import problems
from threadline.service.http.requests import host_name
from threadline.service.process.server import listen

JSON = {"content-type": "application/json"}


def test_every_error_class_has_a_status() -> None:
    classes = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, ThreadlineError)]
    assert set(problems.STATUSES) == set(classes)
    assert set(problems.STATUSES.values()) <= set(problems.TITLES)


async def test_internal_errors_do_not_reveal_details() -> None:
    request = Request({"type": "http", "path": "/", "method": "GET", "headers": [], "query_string": b""})
    answer = await problems.ErrorHandler()(request, errors.StoreCorrupt("/var/lib/secret.db is damaged"))
    assert answer.status_code == 500
    assert b"secret.db" not in bytes(answer.body)
    assert b'"code":"store_corrupt"' in bytes(answer.body)


async def test_responses_are_never_cached_or_framed(client: Client) -> None:
    for answer in (await client.http.get("/healthz"), await client.http.get("/nowhere"), await client.post_chat("Hi")):
        assert "no-store" in answer.headers["cache-control"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "server" not in answer.headers


async def test_an_unknown_route_and_an_unknown_method_are_problems(client: Client) -> None:
    nowhere = await client.http.get("/nowhere")
    assert (nowhere.status_code, nowhere.json()["code"]) == (404, "not_found")
    assert nowhere.headers["content-type"] == "application/problem+json"
    wrong = await client.http.delete(CHAT)
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"content-type": "text/plain"}, "unsupported_media_type"),
        ({"content-type": "application/json; charset=utf-7"}, "unsupported_media_type"),
        ({"content-type": ""}, "unsupported_media_type"),
        ({**JSON, "content-encoding": "gzip"}, "unsupported_encoding"),
    ],
)
async def test_only_uncompressed_json_is_accepted(client: Client, headers: dict[str, str], code: str) -> None:
    answer = await client.http.post(CHAT, content=b"{}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, code)


HEAD = b"POST /api/v1/ai/chat HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


async def raw_response(client: Client, request: bytes) -> bytes:
    """The raw response to these bytes; the service closes the connection before the rest of the body is sent."""
    host, port = client.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.req("S1-10")
@pytest.mark.parametrize("declared", [1_048_577, 2**63 - 1, 10**30])
async def test_a_declared_length_over_the_limit_is_refused_before_the_body_is_read(
    client: Client, declared: int
) -> None:
    answer = await raw_response(client, HEAD + b"content-length: %d\r\n\r\n" % declared)
    assert answer.startswith((b"HTTP/1.1 413", b"HTTP/1.1 400"))
    assert declared > 2**63 or b'"code":"body_too_large"' in answer


async def test_a_body_without_a_declared_length_is_limited_too(client: Client) -> None:
    body = b" " * 1_048_577
    answer = await raw_response(client, HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n%s" % (len(body), body))
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"body must have at most 1048576 bytes" in answer


async def test_a_page_of_another_origin_cannot_write(client: Client) -> None:
    answer = await client.http.post(f"{CHAT}/key/stop", headers={"origin": "http://evil.example"})
    assert (answer.status_code, answer.json()["code"]) == (403, "origin_refused")


async def test_a_page_of_a_configured_origin_can_write(client: Client) -> None:
    asked = {"origin": "http://page", "access-control-request-method": "POST"}
    preflight = await client.http.options(CHAT, headers=asked)
    assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (204, "http://page")
    answer = await client.post_chat("Hi", headers={"origin": "http://page"})
    assert answer.headers["access-control-allow-origin"] == "http://page"
    assert "X-State-Key" in answer.headers["access-control-expose-headers"]


async def test_two_host_headers_are_refused(client: Client) -> None:
    hosts = b"host: localhost\r\nhost: rebound.example\r\nconnection: close\r\n"
    answer = await raw_response(client, b"GET /healthz HTTP/1.1\r\n" + hosts + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"header Host must be given once" in answer


@pytest.mark.req("C-09")
@pytest.mark.parametrize("accept", ["text/plain", "text/plain, text/event-stream"])
async def test_a_client_that_shows_refusals_as_they_are_can_ask_for_a_sentence(client: Client, accept: str) -> None:
    answer = await client.http.get(THREADS, params={"limit": 0}, headers={"accept": accept})
    assert (answer.status_code, answer.text) == (400, "`limit` must be 1–100, got 0.")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    plain = await client.http.get("/nowhere", headers={"accept": accept})
    assert plain.text == "No such route: /docs lists the routes of this service."


@pytest.mark.parametrize("accept", ["*/*", "application/json, text/plain, */*", "text/html"])
async def test_programs_get_problems_as_json(client: Client, accept: str) -> None:
    answer = await client.http.get("/nowhere", headers={"accept": accept})
    assert (answer.headers["content-type"], answer.json()["code"]) == ("application/problem+json", "not_found")


@pytest.mark.req("H-04")
async def test_without_authentication_only_local_host_names_are_accepted_and_others_are_told_the_setting(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await client.http.get(THREADS, headers={"host": "rebound.example"})
    assert (answer.status_code, answer.json()["code"]) == (421, "host_refused")
    for setting in ("`authentication = true` under [service]", "THREADLINE_SERVICE__AUTHENTICATION=true"):
        assert setting in answer.json()["detail"]
    (line,) = [record for record in caplog.records if "host name refused" in record.message]
    assert "service.authentication" in line.message


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", ""])
def test_without_authentication_only_loopback_addresses_are_served(host: str) -> None:
    with pytest.raises(SettingsInvalid, match="can be reached from other machines"):
        check_address(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback_addresses_are_served(host: str) -> None:
    assert check_address(host) == host


@pytest.mark.parametrize(
    ("header", "name"), [("localhost:80", "localhost"), ("[::1]:8300", "::1"), ("LOCALHOST", "localhost"), ("", "")]
)
def test_a_host_header_is_read_without_its_port(header: str, name: str) -> None:
    assert host_name(header) == name


def test_an_address_in_use_is_a_readable_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SettingsInvalid, match=r"cannot serve on 127\.0\.0\.1"):
            listen("127.0.0.1", taken.getsockname()[1])


async def test_without_a_database_the_service_is_healthy_but_not_ready(client: Client, threadline: Threadline) -> None:
    await threadline.store.close()
    assert (await client.http.get("/healthz")).status_code == 200
    answer = await client.http.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert answer.headers["retry-after"]


async def test_health_and_readiness(client: Client) -> None:
    assert (await client.http.get("/healthz")).json() == {"status": "ok"}
    assert (await client.http.get("/readyz")).json() == {"status": "ready"}
