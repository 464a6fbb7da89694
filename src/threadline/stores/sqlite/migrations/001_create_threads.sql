-- oldest compatible: 1
--
-- People, threads, timelines, messages, and the rows that messaging surfaces need.
--
-- Where a key holds an id that came from outside, the tenant stands first in it. Threads and timelines also have a
-- number of their own, which never leaves the store: it keeps rows and indexes small. Times are microseconds since
-- 1970, JSON is a blob kept byte for byte.

CREATE TABLE tenants (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT,
    created_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE users (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    display_name TEXT,
    role TEXT NOT NULL DEFAULT 'member' CHECK (role IN ('viewer', 'member', 'admin')),
    created_us INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE agents (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT,
    settings BLOB,
    system_prompt TEXT,
    enabled INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;

-- A thread's row is the lock of its history. message_count is also the seq the next message gets. timeline_id repeats
-- what the timeline's own row says, so that a list of threads reads no other table. timeline_no is no foreign key: each
-- timeline refers to its thread already, and the index that a second reference needs would be written with every move.
CREATE TABLE threads (
    no INTEGER PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    state_key TEXT NOT NULL,
    timeline_no INTEGER NOT NULL,
    timeline_id TEXT NOT NULL,
    message_count INTEGER NOT NULL,
    token_count INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    archived_us INTEGER,
    deleted_us INTEGER,
    title TEXT,
    title_by_person INTEGER NOT NULL,
    agent_id TEXT,
    model TEXT,
    system_prompt TEXT,
    working_dir TEXT,
    metadata BLOB,
    UNIQUE (tenant_id, id),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT;
CREATE UNIQUE INDEX threads_by_key ON threads (tenant_id, owner_id, state_key) WHERE deleted_us IS NULL;
-- Each thread stands in one of these three, so a list reads no row that it does not show.
CREATE INDEX threads_open ON threads (tenant_id, owner_id, updated_us, id)
    WHERE deleted_us IS NULL AND archived_us IS NULL;
CREATE INDEX threads_archived ON threads (tenant_id, owner_id, updated_us, id)
    WHERE deleted_us IS NULL AND archived_us IS NOT NULL;
CREATE INDEX threads_deleted ON threads (tenant_id, owner_id, updated_us, id) WHERE deleted_us IS NOT NULL;

-- ancestors is the lineage, resolved once, nearest first: 8 bytes each, little-endian, the timeline's number times 2^32
-- plus the last seq that is taken from it. base repeats the nearest, so that descendants can be found. parent is the point
-- that was asked for, which may lie in an ancestor's range. A timeline outlives its thread (thread_no is null) while
-- another thread's history still needs it.
CREATE TABLE timelines (
    no INTEGER PRIMARY KEY CHECK (no < 2147483648),
    tenant_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    id TEXT NOT NULL,
    thread_no INTEGER REFERENCES threads (no) DEFERRABLE INITIALLY DEFERRED,
    created_us INTEGER NOT NULL,
    parent_id TEXT,
    parent_seq INTEGER,
    base_no INTEGER REFERENCES timelines (no),
    base_seq INTEGER,
    ancestors BLOB NOT NULL
) STRICT;
CREATE INDEX timelines_by_thread ON timelines (thread_no);
CREATE INDEX timelines_by_base ON timelines (base_no, base_seq) WHERE base_no IS NOT NULL;

-- In order of arrival, which fills pages well. The index runs down in seq because histories are read from their end.
CREATE TABLE messages (
    no INTEGER PRIMARY KEY,
    timeline_no INTEGER NOT NULL REFERENCES timelines (no),
    seq INTEGER NOT NULL CHECK (seq >= 0),
    role INTEGER NOT NULL CHECK (role BETWEEN 0 AND 2),
    created_us INTEGER NOT NULL,
    id TEXT NOT NULL,
    turn_id TEXT,
    metadata BLOB,
    parts BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX messages_by_seq ON messages (timeline_no, seq DESC);
CREATE INDEX messages_by_id ON messages (id);

CREATE TABLE append_keys (
    thread_no INTEGER NOT NULL REFERENCES threads (no),
    key TEXT NOT NULL,
    timeline_no INTEGER NOT NULL REFERENCES timelines (no),
    first_seq INTEGER NOT NULL,
    message_count INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (thread_no, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX append_keys_by_timeline ON append_keys (timeline_no);

-- A point is saved on the timeline its thread stood on, so the timeline names the thread.
CREATE TABLE saved_points (
    tenant_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    name TEXT NOT NULL,
    timeline_no INTEGER NOT NULL REFERENCES timelines (no),
    seq INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, owner_id, name),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX saved_points_by_timeline ON saved_points (timeline_no);

CREATE TABLE context_snapshots (
    tenant_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    context TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, owner_id, agent_id),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE bindings (
    tenant_id TEXT NOT NULL,
    surface TEXT NOT NULL,
    place TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    thread_no INTEGER NOT NULL REFERENCES threads (no),
    label TEXT,
    metadata BLOB,
    created_us INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, surface, place),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX bindings_by_owner ON bindings (tenant_id, owner_id);
CREATE INDEX bindings_by_thread ON bindings (thread_no);

CREATE TABLE links (
    tenant_id TEXT NOT NULL,
    platform TEXT NOT NULL,
    platform_user_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'verified', 'revoked')),
    created_us INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, platform, platform_user_id),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX links_by_owner ON links (tenant_id, owner_id);

CREATE TABLE link_codes (
    tenant_id TEXT NOT NULL,
    code_hash BLOB NOT NULL,
    owner_id TEXT NOT NULL,
    platform TEXT,
    expires_us INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, code_hash),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX link_codes_by_owner ON link_codes (tenant_id, owner_id);

CREATE TABLE inbox (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    platform TEXT NOT NULL,
    key TEXT NOT NULL,
    status TEXT NOT NULL,
    decision TEXT,
    turn_id TEXT,
    fingerprint TEXT,
    correlation_id TEXT,
    owner_id TEXT,
    created_us INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, platform, key),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX inbox_by_owner ON inbox (tenant_id, owner_id);

CREATE TABLE outbox (
    no INTEGER PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    turn_id TEXT,
    platform TEXT NOT NULL,
    recipient TEXT NOT NULL,
    payload TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('waiting', 'claimed', 'sent', 'dead', 'window_closed')),
    attempts INTEGER NOT NULL,
    next_attempt_us INTEGER NOT NULL,
    claimed_by TEXT,
    claimed_until_us INTEGER,
    last_error TEXT,
    created_us INTEGER NOT NULL,
    sent_us INTEGER,
    UNIQUE (tenant_id, id),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT;
CREATE INDEX outbox_by_owner ON outbox (tenant_id, owner_id);
CREATE INDEX outbox_pending ON outbox (tenant_id, no) WHERE status IN ('waiting', 'claimed');

-- The words of messages, by the number of the message; the text itself is not kept twice. Messages up to indexed_no are
-- in it. `recipe` is how words are taken from a message: another one makes the index anew.
CREATE VIRTUAL TABLE message_words USING fts5 (
    owner, words, content = '', tokenize = 'unicode61 remove_diacritics 2'
);
INSERT INTO message_words (message_words, rank) VALUES ('secure-delete', 1);
CREATE TABLE search_progress (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    indexed_no INTEGER NOT NULL,
    recipe INTEGER NOT NULL
) STRICT;
INSERT INTO search_progress (one, indexed_no, recipe) VALUES (1, 0, 1);
