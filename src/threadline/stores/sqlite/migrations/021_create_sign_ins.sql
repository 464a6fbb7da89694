-- oldest compatible: 21
--
-- Sessions of people, and links that begin one: a row without opened_us. A version 20 program would purge a tenant and
-- leave these behind, and would not end the sessions of a user that it disables.

CREATE TABLE sign_ins (
    tenant_id TEXT NOT NULL,
    id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    secret_hash BLOB NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('viewer', 'member', 'admin')),
    method TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    expires_us INTEGER NOT NULL,
    opened_us INTEGER,
    last_seen_us INTEGER,
    revoked_us INTEGER,
    device TEXT,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, secret_hash),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX sign_ins_by_owner ON sign_ins (tenant_id, owner_id);
