-- oldest compatible: 4
--
-- What channels need beyond their queues: sealed credentials, where an arrival is to be answered, and the order of
-- deliveries at one place. A version 3 program would purge a tenant and leave its credentials behind.

CREATE TABLE credentials (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    platform TEXT NOT NULL,
    key_id TEXT NOT NULL,
    sealed BLOB NOT NULL,
    updated_us INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, platform)
) STRICT, WITHOUT ROWID;

ALTER TABLE inbox ADD COLUMN reply_to TEXT;
CREATE INDEX inbox_by_age ON inbox (tenant_id, created_us);

CREATE INDEX outbox_by_recipient ON outbox (tenant_id, platform, recipient, no)
    WHERE status IN ('waiting', 'claimed');
