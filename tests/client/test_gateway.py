"""The gateway conformance suite on the library and on a client of a served Threadline, on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import threadline
from tests.client.conftest import IMPATIENT
from tests.conftest import postgres_database
from tests.service.conftest import SERVICE
from tests.service.running_service import serving
from threadline.client import connect
from threadline.ports import Gateway
from threadline.settings import Settings
from threadline.testing.gateway import *  # noqa: F403
from threadline.testing.gateway_filters import *  # noqa: F403
from threadline.testing.gateway_questions import *  # noqa: F403
from threadline.testing.gateway_summaries import *  # noqa: F403
from threadline.testing.gateway_values import *  # noqa: F403


@pytest.fixture(params=["library on sqlite", "library on postgres", "client on sqlite", "client on postgres"])
async def gateway(request: pytest.FixtureRequest, tmp_path: Path, tenant_id: str) -> AsyncIterator[Gateway]:
    kind, database = request.param.split(" on ")
    url = str(tmp_path / "t.db") if database == "sqlite" else await postgres_database()
    settings = Settings(database=url, tenant=tenant_id, service=SERVICE)
    async with threadline.open(settings=settings) as tl:
        if kind == "library":
            yield tl.as_user()
            return
        async with serving(tl) as service, connect(service.url, retry=IMPATIENT) as client:
            yield client
