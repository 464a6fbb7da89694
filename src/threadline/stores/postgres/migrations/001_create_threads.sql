-- oldest compatible: 1
--
-- People, threads, timelines, messages, and the rows that messaging surfaces need.
--
-- tenant_id stands first in every primary, unique and foreign key: row security does not cover the checks of keys, so
-- without it one tenant's insert could meet another's rows. Text that is compared uses the collation "C", so that order
-- and equality are the same on every server. Times of messages are microseconds, because a history is read by the
-- thousand; all others are timestamps, for whoever looks into the tables.

-- The line `-- PARTITION BY HASH (tenant_id)` is read without its dashes when partitions are asked for. Storage settings
-- belong to partitions then, and are kept until the partitions are made.

-- Who the transaction speaks for. After a transaction its settings read '', not null.
CREATE FUNCTION threadline.this_tenant() RETURNS text LANGUAGE sql STABLE
    RETURN nullif(current_setting('threadline.tenant', true), '');
CREATE FUNCTION threadline.this_owner() RETURNS text LANGUAGE sql STABLE
    RETURN nullif(current_setting('threadline.owner', true), '');

-- Closes a table to all but the two roles, and shows each of them only what is theirs: the application the rows of one
-- owner in one tenant, the worker those of one tenant. Without an owner column the rows are the whole tenant's.
--
-- The owner is compared in a way that no index can serve. A plan made while a table is small would otherwise look for a
-- thread's id among all threads of its owner, and keep doing so when there are many; and a list that is to be found by
-- its owner says so itself. Where rows are read by the thousand, the owner's setting is looked up once for all of them.
CREATE FUNCTION threadline.protect(
    guarded regclass, owner_column name, privileges text DEFAULT 'SELECT, INSERT, UPDATE, DELETE',
    by_the_thousand boolean DEFAULT false
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    owner constant text := CASE WHEN by_the_thousand THEN '(SELECT %s)' ELSE '%s' END;
    of_tenant constant text := 'tenant_id = threadline.this_tenant()';
    of_owner text := of_tenant;
BEGIN
    IF owner_column IS NOT NULL THEN
        of_owner := format('%s AND coalesce(%I = %s, false)',
            of_tenant, owner_column, format(owner, 'threadline.this_owner()'));
    END IF;
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', guarded);
    EXECUTE format('CREATE POLICY of_owner ON %s TO threadline_app USING (%s)', guarded, of_owner);
    EXECUTE format('CREATE POLICY of_tenant ON %s TO threadline_worker USING (%s)', guarded, of_tenant);
    EXECUTE format('GRANT %s ON %s TO threadline_app, threadline_worker', privileges, guarded);
END $$;

-- A table that may be partitioned: its partitions, or itself if there are none, get these storage settings. A partition
-- is closed to everyone, because only the policies of the whole table say who may see what.
CREATE FUNCTION threadline.arrange(arranged regclass, settings text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    partitions constant integer := coalesce(nullif(current_setting('threadline.partitions', true), ''), '0')::integer;
    part text;
BEGIN
    IF partitions = 0 THEN
        EXECUTE format('ALTER TABLE %s SET (%s)', arranged, settings);
    END IF;
    FOR number IN 0..partitions - 1 LOOP
        part := format('%s_%s', arranged, number);
        EXECUTE format('CREATE TABLE %s PARTITION OF %s FOR VALUES WITH (MODULUS %s, REMAINDER %s) WITH (%s)',
            part, arranged, partitions, number, settings);
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', part);
    END LOOP;
END $$;

CREATE TABLE threadline.tenants (
    tenant_id text COLLATE "C" PRIMARY KEY,
    name text,
    created_at timestamptz NOT NULL
);

CREATE TABLE threadline.users (
    tenant_id text COLLATE "C" NOT NULL REFERENCES threadline.tenants,
    id text COLLATE "C" NOT NULL,
    display_name text,
    role text NOT NULL DEFAULT 'member' CHECK (role IN ('viewer', 'member', 'admin')),
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE threadline.agents (
    tenant_id text COLLATE "C" NOT NULL REFERENCES threadline.tenants,
    id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    provider text NOT NULL,
    model text,
    settings bytea,
    system_prompt text,
    enabled boolean NOT NULL DEFAULT true,
    PRIMARY KEY (tenant_id, id)
);

-- indexed_count says how far search has read the present timeline; what lies behind it is in search_backlog.
CREATE TABLE threadline.threads (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    state_key text COLLATE "C" NOT NULL,
    timeline_id text COLLATE "C" NOT NULL,
    title text,
    title_by_person boolean NOT NULL DEFAULT false,
    agent_id text COLLATE "C",
    model text,
    system_prompt text,
    working_dir text,
    metadata bytea,
    message_count integer NOT NULL DEFAULT 0,
    indexed_count integer NOT NULL DEFAULT 0,
    token_count bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    archived_at timestamptz,
    deleted_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES threadline.users
);
CREATE UNIQUE INDEX threads_state_key ON threadline.threads (tenant_id, owner_id, state_key) WHERE deleted_at IS NULL;
CREATE INDEX threads_living ON threadline.threads (tenant_id, owner_id, updated_at DESC, id DESC)
    WHERE deleted_at IS NULL;
CREATE INDEX threads_deleted ON threadline.threads (tenant_id, owner_id, updated_at DESC, id DESC)
    WHERE deleted_at IS NOT NULL;
CREATE INDEX threads_to_index ON threadline.threads (tenant_id, owner_id) WHERE indexed_count < message_count;

-- ancestors are resolved when a timeline is made, nearest first, each with the last seq that is taken from it. The first
-- 16 are repeated in columns of their own, because a long lineage is kept apart from its row and costs more to fetch
-- than the messages that are read through it; generated columns would be parsed anew for each row. A timeline may outlive
-- its thread (a branch still shows it); then thread_id is null. Whoever adds one has made or changed its thread's row in
-- the same transaction, and a purge locks that row first, so a foreign key would only look again at what is known.
CREATE TABLE threadline.timelines (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C",
    parent_id text COLLATE "C",
    parent_seq integer,
    ancestors text[] COLLATE "C" NOT NULL DEFAULT '{}',
    ancestor_seqs integer[] NOT NULL DEFAULT '{}',
    nearest text[] COLLATE "C" NOT NULL DEFAULT '{}',
    nearest_seqs integer[] NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX timelines_by_thread ON threadline.timelines (tenant_id, thread_id);
CREATE INDEX timelines_left_over ON threadline.timelines (tenant_id, owner_id) WHERE thread_id IS NULL;
CREATE INDEX timelines_by_nearest ON threadline.timelines (tenant_id, (nearest[1])) WHERE cardinality(nearest) > 0;

-- parts and metadata are kept byte for byte. Long ones arrive compressed, so PostgreSQL must not try again (pglz cost a
-- third of an append and saved nothing), and keeps in the row, where one read finds them, whatever fits a page. Columns
-- of fixed size stand first, so that none is padded; role is a user's, an assistant's or the system's initial. CHECKs
-- would be parsed anew by each append.
CREATE TABLE threadline.messages (
    created_us bigint NOT NULL,
    seq integer NOT NULL,
    role "char" NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    timeline_id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C",
    parts bytea NOT NULL,
    metadata bytea,
    PRIMARY KEY (tenant_id, timeline_id, seq),
    FOREIGN KEY (tenant_id, timeline_id) REFERENCES threadline.timelines
)
-- PARTITION BY HASH (tenant_id)
;
CREATE INDEX messages_by_id ON threadline.messages (tenant_id, id);
ALTER TABLE threadline.messages
    ALTER COLUMN parts SET STORAGE EXTERNAL,
    ALTER COLUMN metadata SET STORAGE EXTERNAL;
SELECT threadline.arrange('threadline.messages', 'toast_tuple_target = 8160');

-- Whoever saves a point has locked its thread's row, which holds the timeline as well.
CREATE TABLE threadline.saved_points (
    tenant_id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    timeline_id text COLLATE "C" NOT NULL,
    seq integer NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, owner_id, name)
);
CREATE INDEX saved_points_by_thread ON threadline.saved_points (tenant_id, thread_id);

-- What an append under a key answered, and a fingerprint of what it was asked.
CREATE TABLE threadline.append_keys (
    tenant_id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    fingerprint bytea NOT NULL,
    timeline_id text COLLATE "C" NOT NULL,
    first_seq integer NOT NULL,
    messages integer NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, thread_id, key)
);

CREATE TABLE threadline.context_snapshots (
    tenant_id text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    context text NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, owner_id, agent_id),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES threadline.users
);

CREATE TABLE threadline.bindings (
    tenant_id text COLLATE "C" NOT NULL,
    surface text COLLATE "C" NOT NULL,
    place text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    label text,
    metadata bytea,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, surface, place),
    FOREIGN KEY (tenant_id, thread_id) REFERENCES threadline.threads
);
CREATE INDEX bindings_by_owner ON threadline.bindings (tenant_id, owner_id);
CREATE INDEX bindings_by_thread ON threadline.bindings (tenant_id, thread_id);

CREATE TABLE threadline.links (
    tenant_id text COLLATE "C" NOT NULL,
    platform text COLLATE "C" NOT NULL,
    platform_user_id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    state text NOT NULL CHECK (state IN ('pending', 'verified', 'revoked')),
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, platform, platform_user_id),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES threadline.users
);
CREATE INDEX links_by_owner ON threadline.links (tenant_id, owner_id);

CREATE TABLE threadline.link_codes (
    tenant_id text COLLATE "C" NOT NULL,
    code_hash bytea NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    platform text COLLATE "C",
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, code_hash),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES threadline.users
);
CREATE INDEX link_codes_by_owner ON threadline.link_codes (tenant_id, owner_id);

-- owner_id is null while nobody knows who sent it; only the worker sees such a row.
CREATE TABLE threadline.inbox (
    tenant_id text COLLATE "C" NOT NULL REFERENCES threadline.tenants,
    platform text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C",
    status text NOT NULL,
    decision text,
    turn_id text COLLATE "C",
    fingerprint text,
    correlation_id text,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, platform, key)
);
CREATE INDEX inbox_by_owner ON threadline.inbox (tenant_id, owner_id);

-- place is the order of arrival: clocks may stand still or go back, and ids may be anyone's.
CREATE TABLE threadline.outbox (
    tenant_id text COLLATE "C" NOT NULL REFERENCES threadline.tenants,
    id text COLLATE "C" NOT NULL,
    place bigint GENERATED ALWAYS AS IDENTITY,
    owner_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C",
    platform text COLLATE "C" NOT NULL,
    recipient text NOT NULL,
    payload text NOT NULL,
    status text NOT NULL CHECK (status IN ('waiting', 'claimed', 'sent', 'dead', 'window_closed')),
    attempts integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL,
    claimed_by text,
    claimed_until timestamptz,
    last_error text,
    created_at timestamptz NOT NULL,
    sent_at timestamptz,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX outbox_by_owner ON threadline.outbox (tenant_id, owner_id, place);
CREATE INDEX outbox_by_place ON threadline.outbox (tenant_id, place);
CREATE INDEX outbox_due ON threadline.outbox (tenant_id, place) WHERE status IN ('waiting', 'claimed');

-- What rows will be like, told to the planner before there are any. A connection keeps the plans it made for empty
-- tables while they grow, and for an empty table any index that begins with the tenant seems as good as another.
INSERT INTO threadline.tenants (tenant_id, created_at) VALUES ('-', now());
INSERT INTO threadline.users (tenant_id, id, created_at) SELECT '-', n::text, now() FROM generate_series(1, 20) n;
INSERT INTO threadline.threads (tenant_id, id, owner_id, state_key, timeline_id, created_at, updated_at)
SELECT '-', n::text, (n % 20 + 1)::text, n::text, n::text, now(), now() + n * interval '1 second'
FROM generate_series(1, 1000) n;
INSERT INTO threadline.timelines
    (tenant_id, id, owner_id, thread_id, ancestors, ancestor_seqs, nearest, nearest_seqs, created_at)
SELECT '-', n::text, (n % 20 + 1)::text, n::text, ARRAY[(n / 2)::text], ARRAY[1], ARRAY[(n / 2)::text], ARRAY[1], now()
FROM generate_series(1, 1000) n;
INSERT INTO threadline.messages (created_us, seq, role, tenant_id, timeline_id, owner_id, id, parts)
SELECT n, n / 50, substr('ua', n % 2 + 1, 1)::"char", '-', (n % 50 + 1)::text, (n % 20 + 1)::text, n::text,
    convert_to(repeat('-', 1000), 'UTF8')
FROM generate_series(1, 2000) n;
INSERT INTO threadline.append_keys
    (tenant_id, thread_id, key, owner_id, fingerprint, timeline_id, first_seq, messages, created_at)
SELECT '-', (n % 50 + 1)::text, n::text, (n % 20 + 1)::text, '', '-', n, 1, now() FROM generate_series(1, 1000) n;
ANALYZE threadline.users, threadline.threads, threadline.timelines, threadline.messages, threadline.append_keys;
TRUNCATE threadline.tenants, threadline.timelines CASCADE;

-- Messages are written once: nobody may change one.
SELECT threadline.protect('threadline.tenants', NULL);
SELECT threadline.protect('threadline.users', 'id');
SELECT threadline.protect('threadline.agents', NULL);
SELECT threadline.protect('threadline.threads', 'owner_id');
SELECT threadline.protect('threadline.timelines', 'owner_id');
SELECT threadline.protect('threadline.messages', 'owner_id', 'SELECT, INSERT, DELETE', by_the_thousand => true);
SELECT threadline.protect('threadline.saved_points', 'owner_id');
SELECT threadline.protect('threadline.append_keys', 'owner_id');
SELECT threadline.protect('threadline.context_snapshots', 'owner_id');
SELECT threadline.protect('threadline.bindings', 'owner_id');
SELECT threadline.protect('threadline.links', 'owner_id');
SELECT threadline.protect('threadline.link_codes', 'owner_id');
SELECT threadline.protect('threadline.inbox', 'owner_id');
SELECT threadline.protect('threadline.outbox', 'owner_id');
-- Sweeps of the house go from tenant to tenant.
CREATE POLICY each_tenant ON threadline.tenants FOR SELECT TO threadline_worker USING (true);
