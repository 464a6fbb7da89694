"""An archive has everything of a user and nothing of others, and can be imported."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import open_database, postgres_database
from threadline.administration.user_archive import UserArchive
from threadline.bootstrap import Threadline
from threadline.bootstrap import open as open_threadline
from threadline.core.channels import User
from threadline.core.errors import InvalidImport, NotFound, RoleRefused
from threadline.core.ids import new_id
from threadline.core.sealing import CleanText
from threadline.core.sign_ins import NewSignIn
from threadline.core.threads import Scope, system_scope
from threadline.settings import Settings
from threadline.testing.clock import ManualClock
from threadline.threads.transfer import Importer, lines_of

pytestmark = [pytest.mark.req("K-06"), pytest.mark.req("G-08")]


@pytest.fixture(params=["sqlite", "postgres"])
async def tl(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Threadline]:
    database = str(tmp_path / "here.db") if request.param == "sqlite" else await postgres_database()
    # The database may be used by other tests: each has a tenant of its own.
    async with open_threadline(settings=Settings(database=database, tenant=f"t-{new_id()}")) as opened:
        yield opened


def scope_of(tl: Threadline, user_id: str = "ada") -> Scope:
    return Scope(tl.settings.tenant, user_id)


def admin_of(tl: Threadline) -> Scope:
    return Scope(tl.settings.tenant, "root", "admin")


async def fill(tl: Threadline, user_id: str) -> None:
    """One of everything."""
    me = tl.as_user(user_id)
    thread = await me.create_thread(id=f"{user_id}-open", title=f"Garden of {user_id}")
    await thread.ask(f"What grows in the garden of {user_id}?")
    await thread.undo()
    await thread.ask(f"And in winter, for {user_id}?")
    await thread.save("spring")
    await thread.values.put("notes", "large", b"\x00\xff" * 50_000)
    await me.values.put("notes", "of the user", user_id.encode())
    await (await me.create_thread(id=f"{user_id}-archived")).update(archived=True)
    deleted = await me.create_thread(id=f"{user_id}-deleted")
    await deleted.ask("Delete this.")
    await deleted.delete()
    await tl.contexts(scope_of(tl, user_id)).set("rehearsal", f"I am {user_id}.")
    session = tl.store.scoped(scope_of(tl, user_id))
    await session.put_link("slack", f"U-{user_id}", user_id, "verified")
    await session.bind("slack", f"C-{user_id}", f"{user_id}-open", label=CleanText("chat"))
    await tl.administration(admin_of(tl)).create_token(user_id, name=f"laptop of {user_id}")
    system = tl.store.scoped(system_scope(tl.settings.tenant))
    expires = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    device = f"Firefox of {user_id}"
    await system.add_sign_in(NewSignIn(new_id(), user_id.encode() * 8, user_id, "member", "link", expires, device))
    await system.put_user(User(user_id, f"Name of {user_id}", "member"))


def archive_of(tl: Threadline, scope: Scope) -> UserArchive:
    return UserArchive(tl.store, tl.sealer, tl.clock, tl.value_encoder, scope)


async def archive(tl: Threadline, scope: Scope, user_id: str) -> bytes:
    return b"".join([line async for line in await archive_of(tl, scope).export(user_id)])


def lines(exported: bytes) -> list[Any]:
    return [json.loads(line) for line in exported.splitlines()]


def named(exported: bytes, name: str) -> list[Any]:
    return [line[name] for line in lines(exported) if isinstance(line.get(name), dict)]


async def test_an_archive_has_everything_of_the_user_and_nothing_of_others(tl: Threadline) -> None:
    for user_id in ("ada", "grace"):
        await fill(tl, user_id)
    exported = await archive(tl, scope_of(tl), "ada")
    assert b"grace" not in exported
    (user,) = named(exported, "user")
    assert user == {"id": "ada", "role": "member", "display_name": "Name of ada"}
    assert [each["context"] for each in named(exported, "pinned_text")] == ["I am ada."]
    assert [each["platform_user_id"] for each in named(exported, "link")] == ["U-ada"]
    assert [(each["place"], each["thread_id"]) for each in named(exported, "place")] == [("C-ada", "ada-open")]
    (token,) = named(exported, "token")
    assert token["name"] == "laptop of ada"
    (sign_in,) = named(exported, "sign_in")
    assert sign_in["device"] == "Firefox of ada"
    assert not any("hash" in key or "secret" in key for key in (*token, *sign_in))
    assert sum(each["turns"] for each in named(exported, "usage")) == 3
    assert {each["id"] for each in named(exported, "thread")} == {"ada-open", "ada-archived", "ada-deleted"}
    assert len(named(exported, "turn")) == 3
    assert len(named(exported, "timeline")) == 4
    assert [each["name"] for each in named(exported, "saved_point")] == ["spring"]
    values = named(exported, "value")
    of_user = [each for each in values if "thread_id" not in each]
    assert [base64.b64decode(each["data"]) for each in of_user] == [b"ada"]
    of_thread = [each for each in values if each.get("thread_id") == "ada-open"]
    assert [each.get("piece", 0) for each in of_thread] == list(range(of_thread[0]["pieces"]))
    assert b"".join(base64.b64decode(each["data"]) for each in of_thread) == b"\x00\xff" * 50_000


async def test_others_archives_are_for_administrators_and_leave_a_trace(tl: Threadline) -> None:
    await fill(tl, "ada")
    own = await archive(tl, scope_of(tl), "ada")
    assert await archive(tl, admin_of(tl), "ada") == own
    acts = await tl.administration(admin_of(tl)).acts(limit=1)
    assert [(act.act, act.target, act.actor_id) for act in acts] == [("user.exported", "ada", "root")]
    with pytest.raises(RoleRefused):
        await archive_of(tl, scope_of(tl, "eve")).export("ada")
    with pytest.raises(NotFound):
        await archive_of(tl, admin_of(tl)).export("nobody")
    with pytest.raises(NotFound):
        await archive_of(tl, Scope("other", "root", "admin")).export("ada")


async def test_threads_are_imported_from_an_archive_and_pinned_texts_only_from_a_trusted_one(
    tl: Threadline, tmp_path: Path, clock: ManualClock
) -> None:
    await fill(tl, "ada")
    exported = await archive(tl, scope_of(tl), "ada")
    store = await open_database(str(tmp_path / "there.db"), clock=clock)
    scope = scope_of(tl)
    importer = Importer(store, tl.sealer, clock, scope)
    for expected in ("created", "unchanged"):
        done = await importer.run(lines_of(io.BytesIO(exported), importer.longest_line))
        outcomes = {each.thread.id: each.outcome for each in done}
        assert outcomes["ada-open"] == outcomes["ada-archived"] == expected
        assert (importer.pinned_added, importer.pinned_ignored) == (0, 1)
    assert await store.scoped(scope).contexts() == []
    for added in (1, 0):
        await importer.run(lines_of(io.BytesIO(exported), importer.longest_line), keep_system=True)
        assert (importer.pinned_added, importer.pinned_ignored) == (added, 0)
    assert [each.context for each in await store.scoped(scope).contexts()] == ["I am ada."]
    # Access is not given by a file.
    assert await store.scoped(scope).links() == []
    assert await store.scoped(system_scope(tl.settings.tenant)).tokens() == []
    await store.close()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"I am ada.", b"Obey me..", "does not match its SHA-256"),
        (b'{"pinned_text"', b'{"secret_text"', "line must be about the user"),
        (b'"context":"I am ada."', b'"context":7', "`pinned_text` is not valid"),
        (b'"threadline":2,"user"', b'"threadline":9,"user"', "format version must be 2"),
    ],
)
async def test_an_archive_that_was_changed_stores_nothing(
    tmp_path: Path, clock: ManualClock, old: bytes, new: bytes, reason: str
) -> None:
    async with open_threadline(settings=Settings(database=str(tmp_path / "here.db"))) as tl:
        await fill(tl, "ada")
        exported = await archive(tl, scope_of(tl), "ada")
        assert old in exported
        store = await open_database(str(tmp_path / "there.db"), clock=clock)
        importer = Importer(store, tl.sealer, clock, scope_of(tl))
        cut = exported[: exported.index(b'{"end"')]
        for wrong, why in ((exported.replace(old, new, 1), reason), (cut, "no `end` line for the user")):
            with pytest.raises(InvalidImport, match=why):
                await importer.run(lines_of(io.BytesIO(wrong), importer.longest_line), keep_system=True)
        assert sum((await store.scoped(scope_of(tl)).row_counts()).values()) == 0
        await store.close()
