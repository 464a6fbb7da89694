-- oldest compatible: 24
--
-- That a tenant was purged: the only thing of it that stays. No foreign key, because the tenant is gone. The functions
-- that purge return counts of each table; a version 23 program expects one number.

CREATE TABLE threadline.tenant_purges (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    actor_id text NOT NULL,
    details bytea NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
ALTER TABLE threadline.tenant_purges ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY of_owner ON threadline.tenant_purges TO threadline_app USING (false);
CREATE POLICY of_tenant ON threadline.tenant_purges TO threadline_worker USING (tenant_id = threadline.this_tenant());
GRANT SELECT, INSERT ON threadline.tenant_purges TO threadline_app, threadline_worker;
