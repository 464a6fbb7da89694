-- oldest compatible: 13
--
-- That a tenant was purged: the only thing of it that stays. No foreign key, because the tenant is gone.

CREATE TABLE tenant_purges (
    tenant_id TEXT NOT NULL,
    id TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    details BLOB NOT NULL,
    created_us INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;
