-- oldest compatible: 9
--
-- What channels need beyond their queues: sealed credentials, where an arrival is to be answered, and the order of
-- deliveries at one place. A version 8 program would purge a tenant and leave its credentials behind.

-- The application's role may ask and sees none: only the worker opens what is sealed.
CREATE TABLE threadline.credentials (
    tenant_id text COLLATE "C" NOT NULL REFERENCES threadline.tenants,
    platform text COLLATE "C" NOT NULL,
    key_id text NOT NULL,
    sealed bytea NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, platform)
);
SELECT threadline.protect('threadline.credentials', NULL);
DROP POLICY of_owner ON threadline.credentials;
CREATE POLICY of_owner ON threadline.credentials TO threadline_app USING (false);

ALTER TABLE threadline.inbox ADD COLUMN reply_to text;
CREATE INDEX inbox_by_age ON threadline.inbox (tenant_id, created_at);

CREATE INDEX outbox_by_recipient ON threadline.outbox (tenant_id, platform, recipient, place)
    WHERE status IN ('waiting', 'claimed');

-- Tables of the whole tenant, in an order that the foreign keys allow.
CREATE FUNCTION threadline.shared_tables() RETURNS text[] LANGUAGE sql IMMUTABLE RETURN ARRAY[
    'credentials', 'agents', 'users', 'tenants'
];

CREATE OR REPLACE FUNCTION threadline.purge_tenant(_tenant text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    tablename text;
    removed bigint;
    total bigint := 0;
BEGIN
    DELETE FROM threadline.message_search s WHERE s.tenant_id = _tenant;
    DELETE FROM threadline.search_backlog b WHERE b.tenant_id = _tenant;
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
