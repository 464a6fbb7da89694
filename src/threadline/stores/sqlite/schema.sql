-- What the migrations produce. Written by `python tools/schema.py`; a test compares it with a database.

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
    revoked_us INTEGER, acts_for_users INTEGER NOT NULL DEFAULT 0 CHECK (acts_for_users IN (0, 1)),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, token_hash),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX api_tokens_by_owner ON api_tokens (tenant_id, owner_id);

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

CREATE TABLE credentials (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    platform TEXT NOT NULL,
    key_id TEXT NOT NULL,
    sealed BLOB NOT NULL,
    updated_us INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, platform)
) STRICT, WITHOUT ROWID;

CREATE TABLE hidden_parts (
    timeline_no INTEGER NOT NULL REFERENCES timelines (no),
    seq INTEGER NOT NULL,
    part INTEGER NOT NULL,
    turn_id TEXT,
    hidden_us INTEGER NOT NULL,
    PRIMARY KEY (timeline_no, seq, part)
) STRICT, WITHOUT ROWID;

CREATE INDEX hidden_parts_by_turn ON hidden_parts (turn_id) WHERE turn_id IS NOT NULL;

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
    updated_us INTEGER NOT NULL, reply_to TEXT,
    PRIMARY KEY (tenant_id, platform, key),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX inbox_by_age ON inbox (tenant_id, created_us);

CREATE INDEX inbox_by_owner ON inbox (tenant_id, owner_id);

CREATE INDEX inbox_open ON inbox (tenant_id, created_us) WHERE status = 'accepted';

CREATE VIEW labels_of_threads (tenant_id, label, owner_id, thread_no) AS
SELECT t.tenant_id, 'a' || t.agent_id, t.owner_id, t.no FROM threads t WHERE t.agent_id IS NOT NULL
UNION ALL
SELECT t.tenant_id, CASE m.type WHEN 'text' THEN 's' WHEN 'integer' THEN 'i' WHEN 'null' THEN 'n' ELSE 'b' END
        || m.key || char(31) || CASE m.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' ELSE coalesce(m.atom, '') END,
    t.owner_id, t.no
FROM threads t, json_each(CAST(t.metadata AS TEXT)) m
WHERE t.metadata IS NOT NULL AND length(m.key) + length(coalesce(m.atom, '')) <= 200
    AND (m.type IN ('text', 'true', 'false', 'null')
        OR m.type = 'integer' AND m.atom BETWEEN -999999999999999 AND 999999999999999)
UNION ALL
SELECT t.tenant_id, 't' || g.atom, t.owner_id, t.no
FROM threads t, json_each(CAST(t.metadata AS TEXT), '$.tags') g
WHERE t.metadata IS NOT NULL AND json_type(CAST(t.metadata AS TEXT), '$.tags') = 'array' AND g.type = 'text'
    AND length(g.atom) <= 200;

CREATE TABLE legal_holds (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    reason TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    owner_id TEXT,
    thread_id TEXT,
    PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;

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

CREATE VIRTUAL TABLE message_words USING fts5 (
    owner, words, content = '', tokenize = 'unicode61 remove_diacritics 2'
);

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

CREATE INDEX messages_by_id ON messages (id);

CREATE UNIQUE INDEX messages_by_seq ON messages (timeline_no, seq DESC);

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
    sent_us INTEGER, requeued_us INTEGER, message_id TEXT,
    UNIQUE (tenant_id, id),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT;

CREATE INDEX outbox_by_owner ON outbox (tenant_id, owner_id);

CREATE INDEX outbox_by_recipient ON outbox (tenant_id, platform, recipient, no)
    WHERE status IN ('waiting', 'claimed');

CREATE INDEX outbox_pending ON outbox (tenant_id, no) WHERE status IN ('waiting', 'claimed');

CREATE INDEX outbox_undelivered ON outbox (tenant_id, platform, recipient, no)
    WHERE status IN ('dead', 'window_closed');

CREATE TABLE permits (
    tenant_id TEXT NOT NULL,
    key TEXT NOT NULL,
    window_us INTEGER NOT NULL,
    taken INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, key)
) STRICT, WITHOUT ROWID;

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

CREATE TABLE schema_migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    oldest_compatible INTEGER NOT NULL,
    applied_us INTEGER NOT NULL
) STRICT;

CREATE TABLE search_progress (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    indexed_no INTEGER NOT NULL,
    recipe INTEGER NOT NULL
) STRICT;

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

CREATE TABLE stored_values (
    no INTEGER PRIMARY KEY,
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    scope TEXT NOT NULL CHECK (scope IN ('thread', 'user', 'tenant')),
    scope_id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    n INTEGER NOT NULL,
    owner_id TEXT,
    version INTEGER NOT NULL,
    size INTEGER NOT NULL,
    key_id TEXT,
    updated_us INTEGER NOT NULL,
    expires_us INTEGER,
    piece BLOB NOT NULL,
    UNIQUE (tenant_id, scope, scope_id, namespace, key, n),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT;

CREATE INDEX stored_values_by_expiry ON stored_values (tenant_id, expires_us) WHERE expires_us IS NOT NULL;

CREATE INDEX stored_values_by_owner ON stored_values (tenant_id, owner_id) WHERE owner_id IS NOT NULL;

CREATE TABLE summaries (
    no INTEGER PRIMARY KEY,
    timeline_no INTEGER NOT NULL REFERENCES timelines (no),
    seq INTEGER NOT NULL,
    text TEXT NOT NULL,
    created_us INTEGER NOT NULL
, source TEXT NOT NULL DEFAULT 'extract', model TEXT) STRICT;

CREATE UNIQUE INDEX summaries_by_seq ON summaries (timeline_no, seq DESC);

CREATE TABLE tenant_purges (
    tenant_id TEXT NOT NULL,
    id TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    details BLOB NOT NULL,
    created_us INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE tenants (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT,
    created_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE thread_labels (
    tenant_id TEXT NOT NULL,
    label TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    thread_no INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, label, owner_id, thread_no)
) STRICT, WITHOUT ROWID;

CREATE INDEX thread_labels_by_thread ON thread_labels (thread_no);

CREATE TRIGGER forget_title_words AFTER DELETE ON threads
BEGIN
    DELETE FROM title_words WHERE rowid = OLD.no;
END;

CREATE TRIGGER label_changed_thread AFTER UPDATE OF metadata, agent_id ON threads
WHEN NEW.metadata IS NOT OLD.metadata OR NEW.agent_id IS NOT OLD.agent_id
BEGIN
    DELETE FROM thread_labels WHERE thread_no = NEW.no;
    INSERT OR IGNORE INTO thread_labels (tenant_id, label, owner_id, thread_no)
    SELECT tenant_id, label, owner_id, thread_no FROM labels_of_threads WHERE thread_no = NEW.no LIMIT 200;
END;

CREATE TRIGGER label_new_thread AFTER INSERT ON threads
WHEN NEW.metadata IS NOT NULL OR NEW.agent_id IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO thread_labels (tenant_id, label, owner_id, thread_no)
    SELECT tenant_id, label, owner_id, thread_no FROM labels_of_threads WHERE thread_no = NEW.no LIMIT 200;
END;

CREATE TRIGGER unlabel_removed_thread AFTER DELETE ON threads
BEGIN
    DELETE FROM thread_labels WHERE thread_no = OLD.no;
END;

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
    metadata BLOB, newest_timeline_no INTEGER, compacting_until_us INTEGER, indexed_title TEXT,
    UNIQUE (tenant_id, id),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT;

CREATE INDEX threads_archived ON threads (tenant_id, owner_id, updated_us, id)
    WHERE deleted_us IS NULL AND archived_us IS NOT NULL;

CREATE UNIQUE INDEX threads_by_key ON threads (tenant_id, owner_id, state_key) WHERE deleted_us IS NULL;

CREATE INDEX threads_deleted ON threads (tenant_id, owner_id, updated_us, id) WHERE deleted_us IS NOT NULL;

CREATE INDEX threads_open ON threads (tenant_id, owner_id, updated_us, id)
    WHERE deleted_us IS NULL AND archived_us IS NULL;

CREATE INDEX threads_to_index ON threads (no) WHERE title IS NOT indexed_title;

CREATE TABLE "timelines" (
    no INTEGER PRIMARY KEY CHECK (no < 2147483648),
    tenant_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    id TEXT NOT NULL,
    thread_no INTEGER,
    earlier_no INTEGER,
    created_us INTEGER NOT NULL,
    parent_id TEXT,
    parent_seq INTEGER,
    base_no INTEGER,
    base_seq INTEGER,
    keeps_base INTEGER NOT NULL,
    ancestors BLOB NOT NULL
) STRICT;

CREATE INDEX timelines_by_base ON timelines (base_no, base_seq) WHERE keeps_base;

CREATE VIRTUAL TABLE title_words USING fts5 (owner, words, tokenize = 'unicode61 remove_diacritics 2');

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

CREATE TABLE turn_chunks (
    turn_no INTEGER NOT NULL REFERENCES turns (no),
    n INTEGER NOT NULL,
    chunk BLOB NOT NULL,
    PRIMARY KEY (turn_no, n)
) STRICT, WITHOUT ROWID;

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
    finished_us INTEGER, provider TEXT, model TEXT, steers TEXT,
    UNIQUE (tenant_id, id),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT;

CREATE INDEX turns_active ON turns (tenant_id, thread_no) WHERE status IN ('accepted', 'running');

CREATE UNIQUE INDEX turns_by_key ON turns (tenant_id, owner_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE INDEX turns_by_owner ON turns (tenant_id, owner_id, surface, thread_no);

CREATE INDEX turns_by_thread ON turns (thread_no);

CREATE TABLE "usage_days" (
    tenant_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    day INTEGER NOT NULL,
    agent_id TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    turns INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cost_nanos INTEGER,
    kind TEXT NOT NULL DEFAULT 'turn',
    PRIMARY KEY (tenant_id, owner_id, day, agent_id, provider, model, kind),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_days_by_day ON usage_days (tenant_id, day);

CREATE TABLE users (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    id TEXT NOT NULL,
    display_name TEXT,
    role TEXT NOT NULL DEFAULT 'member' CHECK (role IN ('viewer', 'member', 'admin')),
    created_us INTEGER NOT NULL, disabled_us INTEGER,
    PRIMARY KEY (tenant_id, id)
) STRICT, WITHOUT ROWID;
