-- oldest compatible: 10
--
-- What channels need beyond their queues: sealed credentials, where an arrival is to be answered, and the order of
-- deliveries at one place. A version 9 program would purge a tenant and leave its credentials behind.

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

CREATE OR REPLACE FUNCTION threadline.shared_tables() RETURNS text[] LANGUAGE sql IMMUTABLE RETURN ARRAY[
    'credentials', 'agents', 'audit', 'users', 'tenants'
];
