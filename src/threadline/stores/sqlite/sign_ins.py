"""Sign-ins: sessions of people, and the links that begin one."""

from __future__ import annotations

import datetime as dt

from threadline.core.errors import DuplicateId
from threadline.core.ids import check_id, check_user_id
from threadline.core.messages import to_us
from threadline.core.sign_ins import NewSignIn, SignIn
from threadline.stores import rows
from threadline.stores.sql import load_queries
from threadline.stores.sqlite.engine import Operations
from threadline.stores.sqlite.session import ScopedSession

_SQL = load_queries(__package__, "queries/sign_ins.sql")


class SignInOperations(Operations):
    async def add_sign_in(self, new: NewSignIn) -> SignIn:
        return await self._engine.write(add_sign_in, new)

    async def sign_in_by_hash(self, secret_hash: bytes) -> SignIn | None:
        return await self._engine.read(find_sign_in, secret_hash)

    async def open_sign_in(
        self, link_hash: bytes, *, secret_hash: bytes, expires_at: dt.datetime, device: str | None = None
    ) -> SignIn | None:
        return await self._engine.write(open_sign_in, link_hash, secret_hash, expires_at, device)

    async def sign_ins(self, user_id: str) -> list[SignIn]:
        return await self._engine.read(list_sign_ins, user_id)

    async def revoke_sign_in(self, user_id: str, sign_in_id: str) -> bool:
        return await self._engine.write(revoke_sign_in, user_id, sign_in_id)

    async def revoke_sign_ins(self, user_id: str, *, except_id: str | None = None) -> int:
        return await self._engine.write(revoke_sign_ins, user_id, except_id)

    async def note_sign_in_use(self, sign_in_id: str, used_at: dt.datetime) -> None:
        await self._engine.write(note_sign_in_use, sign_in_id, used_at)

    async def drop_sign_ins(self, *, before: dt.datetime) -> int:
        return await self._engine.write(drop_sign_ins, before)


def add_sign_in(session: ScopedSession, new: NewSignIn) -> SignIn:
    session.scope.require("admin")
    check_id("sign-in", new.id)
    session.ensure_owner(check_user_id(new.owner_id))
    now = session.now_us()
    opened = now if new.is_open else None
    values = (new.id, new.owner_id, new.secret_hash, new.role, new.method, now, to_us(new.expires_at), opened, opened)
    if not session.run(_SQL["add_sign_in"], (session.tenant_id, *values, new.device)):
        raise DuplicateId("sign-in", new.id)
    stored = session.read(rows.sign_in, _SQL["find_sign_in"], (session.tenant_id, new.secret_hash))
    assert stored is not None
    return stored


def find_sign_in(session: ScopedSession, secret_hash: bytes) -> SignIn | None:
    session.scope.require("system")
    return session.read(rows.sign_in, _SQL["find_sign_in"], (session.tenant_id, secret_hash))


def open_sign_in(
    session: ScopedSession, link_hash: bytes, secret_hash: bytes, expires_at: dt.datetime, device: str | None
) -> SignIn | None:
    session.scope.require("system")
    values = (session.tenant_id, link_hash, secret_hash, to_us(expires_at), device, session.now_us())
    if not session.run(_SQL["open_sign_in"], values):
        return None
    return session.read(rows.sign_in, _SQL["find_sign_in"], (session.tenant_id, secret_hash))


def list_sign_ins(session: ScopedSession, user_id: str) -> list[SignIn]:
    _check_user(session, user_id)
    return session.read_all(rows.sign_in, _SQL["list_sign_ins"], (session.tenant_id, user_id))


def revoke_sign_in(session: ScopedSession, user_id: str, sign_in_id: str) -> bool:
    _check_user(session, user_id)
    values = (session.now_us(), session.tenant_id, user_id, sign_in_id)
    return session.run(_SQL["revoke_sign_in"], values) > 0


def revoke_sign_ins(session: ScopedSession, user_id: str, except_id: str | None) -> int:
    _check_user(session, user_id)
    return session.run(_SQL["revoke_sign_ins"], (session.now_us(), session.tenant_id, user_id, except_id))


def note_sign_in_use(session: ScopedSession, sign_in_id: str, used_at: dt.datetime) -> None:
    session.scope.require("system")
    session.run(_SQL["note_sign_in_use"], (to_us(used_at), session.tenant_id, sign_in_id))


def drop_sign_ins(session: ScopedSession, before: dt.datetime) -> int:
    session.scope.require("system")
    return session.run(_SQL["drop_sign_ins"], (session.tenant_id, to_us(before)))


def _check_user(session: ScopedSession, user_id: str) -> None:
    if check_user_id(user_id) != session.user_id:
        session.scope.require("admin")
