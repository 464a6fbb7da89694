-- oldest compatible: 3
--
-- API tokens, counters of rate limits, and the record of administrative acts. An older program would purge a tenant and
-- leave these behind.

CREATE TABLE api_tokens (
    tenant_id TEXT NOT NULL,
    id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    token_hash BLOB NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('viewer', 'member', 'admin')),
    created_us INTEGER NOT NULL,
    expires_us INTEGER,
    last_used_us INTEGER,
    revoked_us INTEGER,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, token_hash),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX api_tokens_by_owner ON api_tokens (tenant_id, owner_id);

-- How much of a limit was given out in the window that began at window_us. Worth nothing a minute later: it is neither
-- counted nor copied, and refers to nobody.
CREATE TABLE permits (
    tenant_id TEXT NOT NULL,
    key TEXT NOT NULL,
    window_us INTEGER NOT NULL,
    taken INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, key)
) STRICT, WITHOUT ROWID;

-- Refers to nobody, because it outlives users.
CREATE TABLE audit (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    act TEXT NOT NULL,
    target TEXT NOT NULL,
    details BLOB,
    created_us INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;
