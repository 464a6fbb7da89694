"""Administration of users: their names and roles, and whether they have access.

Every change is written with an audit entry in one transaction and counts at once: on the next request, on the next
message from a platform, and for streams at their next check.
"""

from __future__ import annotations

from typing import Any

from threadline.core.access import TOKEN_ROLES, TokenRole
from threadline.core.channels import User
from threadline.core.checks import check_choice, check_range
from threadline.core.errors import DuplicateId, InvalidInput, InvalidName, NotFound
from threadline.core.ids import check_user_id
from threadline.core.sealing import CleanJson, Sealer
from threadline.core.threads import SYSTEM_USER, Scope
from threadline.ports import Store, Transaction
from threadline.threads.field_checks import admit_name

USERS_LIMIT = 100


class UserAdministration:
    """The operations of one scope. RoleRefused unless the scope is an administrator's."""

    def __init__(self, store: Store, sealer: Sealer, scope: Scope, *, actor_id: str | None = None) -> None:
        self._store = store
        self._sealer = sealer
        self._scope = scope
        self._actor_id = actor_id

    async def list(self, *, after_id: str | None = None, limit: int = USERS_LIMIT) -> list[User]:
        """By id. For the next page pass the last id of this one as `after_id`."""
        self._scope.require("admin")
        check_range("limit", limit, 1, USERS_LIMIT)
        if after_id is not None:
            check_user_id(after_id)
        return await self._store.scoped(self._scope).users(after_id=after_id, limit=limit)

    async def find(self, user_id: str) -> User:
        """NotFound."""
        self._scope.require("admin")
        user = await self._store.scoped(self._scope).user(check_user_id(user_id))
        return _known(user, user_id)

    async def create(self, user_id: str, *, display_name: str | None = None, role: TokenRole = "member") -> User:
        """DuplicateId if the user exists, also one that came with a token or a first message. InvalidName for the user
        `system`."""
        self._scope.require("admin")
        new = User(check_owner(user_id), self._display_name(display_name), check_choice("role", role, TOKEN_ROLES))
        details = self._details(role=role)

        async def work(tx: Transaction) -> User:
            if await tx.user(user_id) is not None:
                raise DuplicateId("user", user_id)
            created = await tx.put_user(new)
            await tx.record_act("user.created", user_id, details, actor_id=self._actor_id)
            return created

        return await self._store.transact(self._scope, work)

    async def change(self, user_id: str, *, display_name: str | None = None, role: TokenRole | None = None) -> User:
        """Changes what is given; an empty `display_name` removes it. Tokens and sign-ins of the user that have a
        higher role than the new one get the new one. NotFound."""
        self._scope.require("admin")
        check_owner(user_id)
        if role is not None:
            check_choice("role", role, TOKEN_ROLES)
            self._refuse_oneself(user_id, "change your own role")
        name = self._display_name(display_name)
        details = self._details(**({} if role is None else {"role": role}))

        async def work(tx: Transaction) -> User:
            user = _known(await tx.user(user_id), user_id)
            kept_name = user.display_name if display_name is None else name
            changed = await tx.put_user(User(user_id, kept_name, role or user.role))
            if role is not None:
                await tx.limit_tokens(user_id, role)
            await tx.record_act("user.changed", user_id, details, actor_id=self._actor_id)
            return changed

        return await self._store.transact(self._scope, work)

    async def disable(self, user_id: str) -> User:
        """Ends the user's access: tokens, sign-ins and links are revoked, link codes removed, turns stopped, JWTs
        refused. The data stays. NotFound; InvalidInput for the caller's own id, so that a tenant keeps an
        administrator."""
        self._scope.require("admin")
        check_owner(user_id)
        self._refuse_oneself(user_id, "disable yourself")

        async def work(tx: Transaction) -> User:
            user = _known(await tx.disable_user(user_id), user_id)
            await tx.record_act("user.disabled", user_id, actor_id=self._actor_id)
            return user

        return await self._store.transact(self._scope, work)

    async def enable(self, user_id: str) -> User:
        """Gives access again. The user signs in again, and needs new tokens and links. NotFound."""
        self._scope.require("admin")
        check_owner(user_id)

        async def work(tx: Transaction) -> User:
            user = _known(await tx.enable_user(user_id), user_id)
            await tx.record_act("user.enabled", user_id, actor_id=self._actor_id)
            return user

        return await self._store.transact(self._scope, work)

    def _refuse_oneself(self, user_id: str, what: str) -> None:
        if user_id == self._scope.user_id:
            raise InvalidInput(f"you cannot {what}: ask another administrator")

    def _display_name(self, given: str | None) -> str | None:
        return admit_name(self._sealer, "display", given) if given else None

    def _details(self, **details: Any) -> CleanJson:
        return self._sealer.json(details, "details")


def check_owner(user_id: str) -> str:
    """InvalidName for the user `system`, who cannot be administered."""
    if check_user_id(user_id) == SYSTEM_USER:
        raise InvalidName(f"user id {SYSTEM_USER!r} is reserved for the service itself: choose another one")
    return user_id


def _known(user: User | None, user_id: str) -> User:
    if user is None:
        raise NotFound("user", user_id)
    return user
