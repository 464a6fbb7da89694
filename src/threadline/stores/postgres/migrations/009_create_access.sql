-- oldest compatible: 9
--
-- API tokens, counters of rate limits, and the record of administrative acts.

CREATE TABLE threadline.api_tokens (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    token_hash bytea NOT NULL,
    name text NOT NULL,
    role text NOT NULL CHECK (role IN ('viewer', 'member', 'admin')),
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    last_used_at timestamptz,
    revoked_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, token_hash),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES threadline.users
);
CREATE INDEX api_tokens_by_owner ON threadline.api_tokens (tenant_id, owner_id);
SELECT threadline.protect('threadline.api_tokens', 'owner_id');

-- How much of a limit was given out in the window that began at window_at. Worth nothing a minute later: it is neither
-- counted nor copied, and refers to nobody.
CREATE TABLE threadline.permits (
    tenant_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    window_at timestamptz NOT NULL,
    taken integer NOT NULL,
    PRIMARY KEY (tenant_id, key)
);

-- Refers to nobody, because it outlives users.
CREATE TABLE threadline.audit (
    tenant_id text COLLATE "C" NOT NULL REFERENCES threadline.tenants,
    id text COLLATE "C" NOT NULL,
    actor_id text COLLATE "C" NOT NULL,
    act text COLLATE "C" NOT NULL,
    target text NOT NULL,
    details bytea,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id)
);

-- Both are the house's. The application sees nothing of them and writes only what its own user did; a record is written
-- once, and nobody may change one.
ALTER TABLE threadline.permits ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY of_owner ON threadline.permits TO threadline_app USING (false);
CREATE POLICY of_tenant ON threadline.permits TO threadline_worker USING (tenant_id = threadline.this_tenant());
GRANT SELECT, INSERT, UPDATE, DELETE ON threadline.permits TO threadline_app, threadline_worker;
ALTER TABLE threadline.audit ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY of_owner ON threadline.audit TO threadline_app USING (false)
    WITH CHECK (tenant_id = threadline.this_tenant() AND coalesce(actor_id = threadline.this_owner(), false));
CREATE POLICY of_tenant ON threadline.audit TO threadline_worker USING (tenant_id = threadline.this_tenant());
GRANT SELECT, INSERT, DELETE ON threadline.audit TO threadline_app, threadline_worker;

-- Every request that presents a token asks this, so it is one round trip.
CREATE FUNCTION threadline.find_token(_tenant text, _owner text, _role text, _hash bytea)
RETURNS SETOF threadline.api_tokens LANGUAGE plpgsql AS $$
BEGIN
    PERFORM threadline.enter(_tenant, _owner, _role);
    RETURN QUERY SELECT * FROM threadline.api_tokens t WHERE t.tenant_id = _tenant AND t.token_hash = _hash;
END $$;

-- How many of the wanted are given. The row's lock makes those who ask at once stand in line.
CREATE FUNCTION threadline.take_permits(
    _tenant text, _owner text, _role text, _key text, _window_us bigint, _wanted integer, _limit integer
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    current timestamptz;
    before integer;
    given integer;
BEGIN
    PERFORM threadline.enter(_tenant, _owner, _role);
    INSERT INTO threadline.permits (tenant_id, key, window_at, taken)
    VALUES (_tenant, _key, threadline.moment(_window_us), 0) ON CONFLICT DO NOTHING;
    SELECT p.window_at, p.taken INTO current, before FROM threadline.permits p
    WHERE p.tenant_id = _tenant AND p.key = _key FOR UPDATE;
    IF current < threadline.moment(_window_us) THEN
        current := threadline.moment(_window_us);
        before := 0;
    END IF;
    given := greatest(0, least(_wanted, _limit - before));
    UPDATE threadline.permits p SET window_at = current, taken = before + given
    WHERE p.tenant_id = _tenant AND p.key = _key;
    RETURN given;
END $$;

CREATE OR REPLACE FUNCTION threadline.owned_tables() RETURNS text[] LANGUAGE sql IMMUTABLE RETURN ARRAY[
    'turn_chunks', 'tool_runs', 'turns', 'summaries', 'saved_points', 'append_keys', 'bindings', 'messages',
    'timelines', 'threads', 'context_snapshots', 'links', 'link_codes', 'inbox', 'outbox', 'api_tokens'
];

-- Tables of the whole tenant, likewise in an order that the foreign keys allow.
CREATE FUNCTION threadline.shared_tables() RETURNS text[] LANGUAGE sql IMMUTABLE RETURN ARRAY[
    'agents', 'audit', 'users', 'tenants'
];

CREATE OR REPLACE FUNCTION threadline.purge_tenant(_tenant text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    tablename text;
    removed bigint;
    total bigint := 0;
BEGIN
    PERFORM threadline.hold(_tenant, NULL);
    DELETE FROM threadline.message_search s WHERE s.tenant_id = _tenant;
    DELETE FROM threadline.search_backlog b WHERE b.tenant_id = _tenant;
    DELETE FROM threadline.permits p WHERE p.tenant_id = _tenant;
    FOREACH tablename IN ARRAY threadline.owned_tables() || threadline.shared_tables() LOOP
        EXECUTE format('DELETE FROM threadline.%I WHERE tenant_id = $1', tablename) USING _tenant;
        GET DIAGNOSTICS removed = ROW_COUNT;
        total := total + removed;
    END LOOP;
    RETURN total;
END $$;

CREATE OR REPLACE FUNCTION threadline.count_rows(_tenant text) RETURNS TABLE (tablename text, counted bigint)
LANGUAGE plpgsql AS $$
BEGIN
    FOREACH tablename IN ARRAY threadline.owned_tables() || threadline.shared_tables() LOOP
        EXECUTE format('SELECT count(*) FROM threadline.%I WHERE tenant_id = $1', tablename) INTO counted USING _tenant;
        RETURN NEXT;
    END LOOP;
END $$;
