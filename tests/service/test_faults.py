"""Texts for invalid bodies and queries: they name the key, the rule and what was sent, but repeat no strings."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.service.running_service import THREADS, Client
from threadline.service.http.faults import describe_fault
from threadline.service.routes.channels import CredentialsBody
from threadline.service.routes.thread_upkeep import ExportQuery
from threadline.service.routes.threads import ListThreadsQuery, SwitchBody


@pytest.mark.parametrize(
    ("value", "shape", "text"),
    [
        ({"limit": 0}, ListThreadsQuery, "`limit` must be 1–100, got 0"),
        ({"limit": "many"}, ListThreadsQuery, "`limit` must be 1–100, got a string"),
        ({"q": ""}, ListThreadsQuery, "`q` must be a string of length >= 1"),
        ({"format": "xml"}, ExportQuery, "`format` must be one of json, jsonl, markdown"),
        ({"formt": "json"}, ExportQuery, "`formt` is not a known key: use format"),
        ({}, SwitchBody, "`timelineId` is missing"),
        ({"secrets": "xoxb-1"}, CredentialsBody, "`secrets` must be an object, got a string"),
        ({"secrets": {"token": 1}}, CredentialsBody, "`secrets[...]` must be a string, got an integer"),
    ],
)
def test_a_fault_names_the_key_the_rule_and_the_value(value: dict[str, Any], shape: type, text: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, shape, strict=False)
    assert describe_fault(caught.value, value, shape) == text


async def test_a_body_that_is_not_an_object_is_named_by_its_type(client: Client) -> None:
    for body, name in (([], "an array"), ("text", "a string"), (1, "a number"), (True, "a boolean")):
        answer = await client.http.post(THREADS, json=body)
        assert (answer.status_code, answer.json()["detail"]) == (400, f"body must be a JSON object, got {name}")


@pytest.mark.parametrize("limit", ["1e2", "5.0", "+5", " 5", "5_0", "٥", "0x5", "many", "true"])
async def test_an_integer_in_a_query_must_be_written_in_digits(client: Client, limit: str) -> None:
    answer = await client.http.get(THREADS, params={"limit": limit})
    assert (answer.status_code, answer.json()["detail"]) == (400, "`limit` must be 1–100, in digits")
