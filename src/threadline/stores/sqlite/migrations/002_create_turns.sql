-- oldest compatible: 2
--
-- Turns and what belongs to them. A version 1 program must not go on using the file: it would purge a thread and
-- leave its turns behind.

-- Numbers follow acceptance: of two turns of a thread, the lower number runs first.
CREATE TABLE turns (
    no INTEGER PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    thread_no INTEGER NOT NULL REFERENCES threads (no),
    surface TEXT NOT NULL,
    agent_id TEXT,
    status TEXT NOT NULL,
    idempotency_key TEXT,
    request_hash BLOB,
    request_seq INTEGER,
    reply_seq INTEGER,
    error TEXT,
    usage BLOB,
    seen BLOB,
    lease_owner TEXT,
    lease_until_us INTEGER,
    fence INTEGER NOT NULL,
    stop_asked INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    finished_us INTEGER,
    UNIQUE (tenant_id, id),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT;
CREATE UNIQUE INDEX turns_by_key ON turns (tenant_id, owner_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX turns_by_owner ON turns (tenant_id, owner_id);
CREATE INDEX turns_by_thread ON turns (thread_no);
CREATE INDEX turns_active ON turns (tenant_id, thread_no) WHERE status IN ('accepted', 'running');

CREATE TABLE turn_chunks (
    turn_no INTEGER NOT NULL REFERENCES turns (no),
    n INTEGER NOT NULL,
    chunk BLOB NOT NULL,
    PRIMARY KEY (turn_no, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE tool_runs (
    no INTEGER PRIMARY KEY,
    turn_no INTEGER NOT NULL REFERENCES turns (no),
    call_id TEXT NOT NULL,
    name TEXT NOT NULL,
    input BLOB NOT NULL,
    repeatable INTEGER NOT NULL,
    output BLOB,
    finished_us INTEGER,
    UNIQUE (turn_no, call_id)
) STRICT;

-- Kept on the timeline that holds the message, so every history that shows the message shares the summary.
CREATE TABLE summaries (
    no INTEGER PRIMARY KEY,
    timeline_no INTEGER NOT NULL REFERENCES timelines (no),
    seq INTEGER NOT NULL,
    text TEXT NOT NULL,
    created_us INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX summaries_by_seq ON summaries (timeline_no, seq DESC);
