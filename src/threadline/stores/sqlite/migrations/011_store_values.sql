-- oldest compatible: 11
--
-- Values that programs keep beside the log: of a thread, of a user, or of the whole tenant (scope_id ''). A value longer
-- than a piece is several rows that differ in n and piece only. size is that of the whole value as it was given; key_id
-- names the key of the vault it is encrypted with, if it is. A version 10 program would purge a thread and leave its
-- values behind.

CREATE TABLE stored_values (
    no INTEGER PRIMARY KEY,
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    scope TEXT NOT NULL CHECK (scope IN ('thread', 'user', 'tenant')),
    scope_id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    n INTEGER NOT NULL,
    owner_id TEXT,
    version INTEGER NOT NULL,
    size INTEGER NOT NULL,
    key_id TEXT,
    updated_us INTEGER NOT NULL,
    expires_us INTEGER,
    piece BLOB NOT NULL,
    UNIQUE (tenant_id, scope, scope_id, namespace, key, n),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT;
CREATE INDEX stored_values_by_owner ON stored_values (tenant_id, owner_id) WHERE owner_id IS NOT NULL;
CREATE INDEX stored_values_by_expiry ON stored_values (tenant_id, expires_us) WHERE expires_us IS NOT NULL;
