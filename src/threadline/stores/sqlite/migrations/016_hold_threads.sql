-- oldest compatible: 16
--
-- Legal holds: what must not be purged. A version 15 program would purge it.

CREATE TABLE legal_holds (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    reason TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    owner_id TEXT,
    thread_id TEXT,
    PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;
