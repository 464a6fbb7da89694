-- oldest compatible: 2
--
-- Turns with their leases, what was shown while they ran, the tools they started, and summaries of histories. A program
-- that knows only version 1 would purge a thread and leave these behind.
--
-- place is the order of acceptance.

CREATE TABLE threadline.turns (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    place bigint GENERATED ALWAYS AS IDENTITY,
    surface text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C",
    status text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C",
    request_hash bytea,
    request_seq integer,
    reply_seq integer,
    error text,
    usage bytea,
    seen bytea,
    lease_owner text,
    lease_until timestamptz,
    fence integer NOT NULL DEFAULT 0,
    stop_asked boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL,
    finished_at timestamptz,
    PRIMARY KEY (tenant_id, id)
);
CREATE UNIQUE INDEX turns_key ON threadline.turns (tenant_id, owner_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX turns_by_thread ON threadline.turns (tenant_id, thread_id, place);
CREATE INDEX turns_by_owner ON threadline.turns (tenant_id, owner_id);
CREATE INDEX turns_active ON threadline.turns (tenant_id, place) WHERE status IN ('accepted', 'running');

-- What rows will be like, as in migration 1.
INSERT INTO threadline.turns (tenant_id, id, owner_id, thread_id, surface, status, idempotency_key, created_at)
SELECT '-', n::text, (n % 20 + 1)::text, (n % 100 + 1)::text, 'web', 'executed', n::text, now()
FROM generate_series(1, 1000) n;
ANALYZE threadline.turns;
TRUNCATE threadline.turns RESTART IDENTITY;
ALTER TABLE threadline.turns ADD FOREIGN KEY (tenant_id, thread_id) REFERENCES threadline.threads;

CREATE TABLE threadline.turn_chunks (
    tenant_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    n integer NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    chunk bytea NOT NULL,
    PRIMARY KEY (tenant_id, turn_id, n),
    FOREIGN KEY (tenant_id, turn_id) REFERENCES threadline.turns
);

CREATE TABLE threadline.tool_runs (
    tenant_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    call_id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    place bigint GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL,
    input bytea NOT NULL,
    repeatable boolean NOT NULL,
    output bytea,
    finished_at timestamptz,
    PRIMARY KEY (tenant_id, turn_id, call_id),
    FOREIGN KEY (tenant_id, turn_id) REFERENCES threadline.turns
);

CREATE TABLE threadline.summaries (
    tenant_id text COLLATE "C" NOT NULL,
    timeline_id text COLLATE "C" NOT NULL,
    seq integer NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    text text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, timeline_id, seq),
    FOREIGN KEY (tenant_id, timeline_id) REFERENCES threadline.timelines
);

SELECT threadline.protect('threadline.turns', 'owner_id');
SELECT threadline.protect('threadline.turn_chunks', 'owner_id');
SELECT threadline.protect('threadline.tool_runs', 'owner_id');
SELECT threadline.protect('threadline.summaries', 'owner_id');
