-- oldest compatible: 21
--
-- Values that programs keep beside the log: of a thread, of a user, or of the whole tenant (scope_id ''). A value longer
-- than a piece is several rows that differ in n and piece only. size is that of the whole value as it was given; key_id
-- names the key of the vault it is encrypted with, if it is. A version 20 program would purge a thread and leave its
-- values behind.

CREATE TABLE threadline.stored_values (
    tenant_id text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL CHECK (scope IN ('thread', 'user', 'tenant')),
    scope_id text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    n integer NOT NULL,
    owner_id text COLLATE "C",
    version bigint NOT NULL,
    size integer NOT NULL,
    key_id text COLLATE "C",
    updated_at timestamptz NOT NULL,
    expires_at timestamptz,
    piece bytea NOT NULL,
    PRIMARY KEY (tenant_id, scope, scope_id, namespace, key, n),
    FOREIGN KEY (tenant_id) REFERENCES threadline.tenants,
    FOREIGN KEY (tenant_id, owner_id) REFERENCES threadline.users
);
CREATE INDEX stored_values_by_owner ON threadline.stored_values (tenant_id, owner_id) WHERE owner_id IS NOT NULL;
CREATE INDEX stored_values_by_expiry ON threadline.stored_values (tenant_id, expires_at) WHERE expires_at IS NOT NULL;

-- Values of the tenant have no owner, and every user of the tenant may read them.
ALTER TABLE threadline.stored_values ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY of_owner ON threadline.stored_values TO threadline_app
    USING (tenant_id = threadline.this_tenant() AND coalesce(owner_id = threadline.this_owner(), scope = 'tenant'));
CREATE POLICY of_tenant ON threadline.stored_values TO threadline_worker USING (tenant_id = threadline.this_tenant());
GRANT SELECT, INSERT, UPDATE, DELETE ON threadline.stored_values TO threadline_app, threadline_worker;
