"""Only administrators list the threads of all users, and the audit log says who did."""

from __future__ import annotations

from pathlib import Path

import pytest

import threadline
from tests.client.conftest import IMPATIENT
from tests.conftest import postgres_database
from tests.service.conftest import SERVICE
from tests.service.running_service import serving
from threadline.client import connect
from threadline.core.errors import InvalidName, RoleRefused
from threadline.core.threads import Scope
from threadline.ports import Gateway
from threadline.settings import Settings


async def check_lists(admin: Gateway, ids: dict[str, str]) -> None:
    page = await admin.all_threads(limit=1)
    rest = await admin.all_threads(limit=5, cursor=page.next_cursor)
    assert [thread.id for thread in (*page, *rest)] == sorted(ids.values(), reverse=True)
    assert [thread.id for thread in await admin.all_threads(user="bob")] == [ids["bob"]]
    assert [thread.id for thread in await admin.all_threads(where={"of": "alice"})] == [ids["alice"]]
    assert [thread.id for thread in await admin.all_threads(archived=True)] == []
    with pytest.raises(InvalidName):
        await admin.all_threads(user="")


@pytest.mark.req("G-10")
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_administrators_list_the_threads_of_all_users(tmp_path: Path, tenant_id: str, database: str) -> None:
    url = str(tmp_path / "t.db") if database == "sqlite" else await postgres_database()
    async with threadline.open(settings=Settings(database=url, tenant=tenant_id, service=SERVICE)) as tl:
        ids = {}
        for user in ("alice", "bob"):
            ids[user] = (await tl.as_user(user).create_thread(metadata={"of": user})).id
        admin = tl.as_user("root", role="admin")
        await check_lists(admin, ids)
        for role in ("viewer", "member"):
            with pytest.raises(RoleRefused):
                await tl.as_user("alice", role=role).all_threads()
        acts = await tl.administration(Scope(tenant_id, "root", "admin")).acts()
        assert ("root", "threads.listed", "bob") in [(act.actor_id, act.act, act.target) for act in acts]
        # Without authentication a caller on the same machine is an administrator.
        async with serving(tl) as service, connect(service.url, retry=IMPATIENT) as client:
            await check_lists(client, ids)
