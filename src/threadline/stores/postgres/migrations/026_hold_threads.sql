-- oldest compatible: 26
--
-- Legal holds: what must not be purged. A version 25 program would purge it.

CREATE TABLE threadline.legal_holds (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    owner_id text COLLATE "C",
    thread_id text COLLATE "C",
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id) REFERENCES threadline.tenants
);
ALTER TABLE threadline.legal_holds ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY of_owner ON threadline.legal_holds TO threadline_app USING (false);
CREATE POLICY of_tenant ON threadline.legal_holds TO threadline_worker USING (tenant_id = threadline.this_tenant());
GRANT SELECT, INSERT, DELETE ON threadline.legal_holds TO threadline_app, threadline_worker;
