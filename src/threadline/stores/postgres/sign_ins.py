"""Sign-ins: sessions of people, and the links that begin one."""

from __future__ import annotations

import datetime as dt
from typing import Any

import asyncpg

from threadline.core.errors import DuplicateId
from threadline.core.ids import check_id, check_user_id
from threadline.core.sign_ins import NewSignIn, SignIn
from threadline.stores import rows
from threadline.stores.postgres.session import Operations, in_transaction
from threadline.stores.sql import load_queries

_SQL = load_queries(__package__, "queries/sign_ins.sql")


class SignInOperations(Operations):
    @in_transaction
    async def add_sign_in(self, new: NewSignIn) -> SignIn:
        self.session.scope.require("admin")
        check_id("sign-in", new.id)
        now = self.session.now()
        opened = now if new.is_open else None
        values = (new.id, new.owner_id, new.secret_hash, new.role, new.method, now, new.expires_at, opened, opened)
        async with self.session.as_worker():
            await self.session.ensure_user(check_user_id(new.owner_id))
            row = await self.session.row(_SQL["add_sign_in"], *values, new.device)
        if row is None:
            raise DuplicateId("sign-in", new.id)
        return rows.sign_in(row)

    async def sign_in_by_hash(self, secret_hash: bytes) -> SignIn | None:
        self.session.scope.require("system")
        found = await self.session.call(_SQL["find_sign_in"], secret_hash, reads=True)
        return rows.sign_in(found[0]) if found else None

    @in_transaction
    async def open_sign_in(
        self, link_hash: bytes, *, secret_hash: bytes, expires_at: dt.datetime, device: str | None = None
    ) -> SignIn | None:
        self.session.scope.require("system")
        values = (link_hash, secret_hash, expires_at, device, self.session.now())
        row = await self.session.row(_SQL["open_sign_in"], *values)
        return None if row is None else rows.sign_in(row)

    @in_transaction
    async def sign_ins(self, user_id: str) -> list[SignIn]:
        return [rows.sign_in(row) for row in await self._rows_of(user_id, _SQL["list_sign_ins"])]

    @in_transaction
    async def revoke_sign_in(self, user_id: str, sign_in_id: str) -> bool:
        return await self._change_of(user_id, _SQL["revoke_sign_in"], sign_in_id, self.session.now()) > 0

    @in_transaction
    async def revoke_sign_ins(self, user_id: str, *, except_id: str | None = None) -> int:
        return await self._change_of(user_id, _SQL["revoke_sign_ins"], except_id, self.session.now())

    @in_transaction
    async def note_sign_in_use(self, sign_in_id: str, used_at: dt.datetime) -> None:
        self.session.scope.require("system")
        await self.session.run(_SQL["note_sign_in_use"], sign_in_id, used_at)

    @in_transaction
    async def drop_sign_ins(self, *, before: dt.datetime) -> int:
        self.session.scope.require("system")
        return await self.session.run(_SQL["drop_sign_ins"], before)

    async def _rows_of(self, user_id: str, statement: str) -> list[asyncpg.Record]:
        """Row security shows a user their own rows; for those of others an administrator needs the worker's role."""
        if check_user_id(user_id) == self.session.owner_id:
            return await self.session.rows(statement, user_id)
        self.session.scope.require("admin")
        async with self.session.as_worker():
            return await self.session.rows(statement, user_id)

    async def _change_of(self, user_id: str, statement: str, *values: Any) -> int:
        if check_user_id(user_id) == self.session.owner_id:
            return await self.session.run(statement, user_id, *values)
        self.session.scope.require("admin")
        async with self.session.as_worker():
            return await self.session.run(statement, user_id, *values)
