-- oldest compatible: 31
--
-- Sessions of people, and links that begin one: a row without opened_at. A version 30 program would purge a tenant and
-- leave these behind, and would not end the sessions of a user that it disables.

CREATE TABLE threadline.sign_ins (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    secret_hash bytea NOT NULL,
    role text NOT NULL CHECK (role IN ('viewer', 'member', 'admin')),
    method text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    opened_at timestamptz,
    last_seen_at timestamptz,
    revoked_at timestamptz,
    device text,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, secret_hash),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES threadline.users
);
CREATE INDEX sign_ins_by_owner ON threadline.sign_ins (tenant_id, owner_id);
SELECT threadline.protect('threadline.sign_ins', 'owner_id');
