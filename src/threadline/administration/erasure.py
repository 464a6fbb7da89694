"""Erasure of users and tenants, each with an audit entry and a receipt.

An administrator erases users of their tenant, users erase themselves, the operator erases tenants too. The entry about
an erased tenant outlives it; it has no text of the tenant, only counts.
"""

from __future__ import annotations

from threadline.administration.users import check_owner
from threadline.core.errors import InvalidInput, NotFound
from threadline.core.ids import new_id
from threadline.core.receipts import ErasureReceipt
from threadline.core.sealing import Sealer
from threadline.core.threads import Scope, system_scope
from threadline.ports import Clock, Store, Transaction
from threadline.signatures import ReceiptSigner


class Erasure:
    """The operations of one scope."""

    def __init__(
        self,
        store: Store,
        sealer: Sealer,
        clock: Clock,
        signer: ReceiptSigner,
        scope: Scope,
        *,
        actor_id: str | None = None,
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._clock = clock
        self._signer = signer
        self._scope = scope
        self._actor_id = actor_id or scope.user_id

    async def erase_user(self, user_id: str) -> ErasureReceipt:
        """Removes everything of the user permanently. RoleRefused unless the scope is an administrator's; NotFound."""
        self._scope.require("admin")
        return await self._erase(check_owner(user_id))

    async def erase_oneself(self, confirmed: str) -> ErasureReceipt:
        """The same for the scope's own user. InvalidInput unless `confirmed` is their id."""
        if confirmed != self._scope.user_id:
            raise InvalidInput("`confirm` must be your own user id, because everything of yours is removed permanently")
        return await self._erase(check_owner(self._scope.user_id))

    async def erase_tenant(self) -> ErasureReceipt:
        """Removes everything of the tenant permanently. Operator only (RoleRefused)."""
        self._scope.require("system")
        rows = await self._store.scoped(self._scope).purge_tenant(actor_id=self._actor_id)
        return self._receipt(rows, None)

    async def _erase(self, user_id: str) -> ErasureReceipt:
        async def work(tx: Transaction) -> dict[str, int]:
            if await tx.user(user_id) is None:
                raise NotFound("user", user_id)
            rows = await tx.purge_user(user_id)
            details = self._sealer.json({"rows": rows}, "details")
            await tx.record_act("user.purged", user_id, details, actor_id=self._actor_id)
            return rows

        # An administrator's own scope sees only their own rows.
        return self._receipt(await self._store.transact(system_scope(self._scope.tenant_id), work), user_id)

    def _receipt(self, rows: dict[str, int], user_id: str | None) -> ErasureReceipt:
        receipt = ErasureReceipt(
            new_id(),
            "tenant" if user_id is None else "user",
            self._scope.tenant_id,
            self._actor_id,
            self._clock.now(),
            rows,
            user_id,
        )
        return self._signer.sign(receipt)
