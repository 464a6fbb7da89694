-- name: find_turn
SELECT r.id, r.owner_id, t.id AS thread_id, r.surface, r.agent_id, r.status, r.idempotency_key, r.request_hash, r.request_seq,
    r.reply_seq, r.error, r.usage, r.seen, r.lease_owner, r.lease_until_us, r.fence, r.created_us, r.finished_us,
    r.provider, r.model, r.steers
FROM turns r JOIN threads t ON t.no = r.thread_no
WHERE r.tenant_id = ? AND r.id = ? AND (r.owner_id = ? OR ?);

-- name: find_turn_by_key
SELECT r.id, r.owner_id, t.id AS thread_id, r.surface, r.agent_id, r.status, r.idempotency_key, r.request_hash, r.request_seq,
    r.reply_seq, r.error, r.usage, r.seen, r.lease_owner, r.lease_until_us, r.fence, r.created_us, r.finished_us,
    r.provider, r.model, r.steers
FROM turns r JOIN threads t ON t.no = r.thread_no
WHERE r.tenant_id = ? AND r.owner_id = ? AND r.idempotency_key = ?;

-- name: list_active_turns
SELECT r.id, r.owner_id, t.id AS thread_id, r.surface, r.agent_id, r.status, r.idempotency_key, r.request_hash, r.request_seq,
    r.reply_seq, r.error, r.usage, r.seen, r.lease_owner, r.lease_until_us, r.fence, r.created_us, r.finished_us,
    r.provider, r.model, r.steers
FROM turns r INDEXED BY turns_active CROSS JOIN threads t ON t.no = r.thread_no
WHERE r.tenant_id = ? AND r.thread_no = ? AND r.status IN ('accepted', 'running')
ORDER BY r.no;

-- name: list_turns
SELECT r.id, r.owner_id, t.id AS thread_id, r.surface, r.agent_id, r.status, r.idempotency_key, r.request_hash, r.request_seq,
    r.reply_seq, r.error, r.usage, r.seen, r.lease_owner, r.lease_until_us, r.fence, r.created_us, r.finished_us,
    r.provider, r.model, r.steers
FROM turns r INDEXED BY turns_by_thread CROSS JOIN threads t ON t.no = r.thread_no
WHERE r.thread_no = ? ORDER BY r.no DESC LIMIT ?;

-- name: list_surfaces
SELECT t.id, (
    SELECT group_concat(DISTINCT surface ORDER BY surface) FROM (
        SELECT surface FROM turns INDEXED BY turns_by_thread WHERE thread_no = t.no ORDER BY no DESC LIMIT 50
    )
)
FROM json_each(?) w CROSS JOIN threads t ON t.tenant_id = ? AND t.id = w.value
WHERE (t.owner_id = ? OR ?) AND t.deleted_us IS NULL;

-- name: list_due_turns
SELECT r.id, r.owner_id, t.id AS thread_id, r.surface, r.agent_id, r.status, r.idempotency_key, r.request_hash, r.request_seq,
    r.reply_seq, r.error, r.usage, r.seen, r.lease_owner, r.lease_until_us, r.fence, r.created_us, r.finished_us,
    r.provider, r.model, r.steers
FROM turns r INDEXED BY turns_active CROSS JOIN threads t ON t.no = r.thread_no
WHERE r.tenant_id = ? AND r.status IN ('accepted', 'running') AND (r.owner_id = ? OR ?)
    AND (r.lease_until_us IS NULL OR r.lease_until_us <= ? OR r.lease_until_us > ?)
ORDER BY r.no LIMIT ?;

-- name: list_handed_over
SELECT r.id FROM turns r INDEXED BY turns_active
WHERE r.tenant_id = ? AND r.status IN ('accepted', 'running') AND (r.owner_id = ? OR ?)
    AND r.lease_owner IS NULL AND r.lease_until_us <= ?
    AND (r.lease_until_us > ? OR r.surface IN (SELECT value FROM json_each(?)))
ORDER BY r.no LIMIT ?;

-- name: find_thread_no
SELECT no FROM threads WHERE tenant_id = ? AND id = ? AND (owner_id = ? OR ?);

-- name: find_turn_id
SELECT 1 FROM turns WHERE tenant_id = ? AND id = ?;

-- name: add_turn
INSERT INTO turns (tenant_id, id, owner_id, thread_no, surface, agent_id, status, idempotency_key, request_hash,
    request_seq, model, seen, lease_owner, lease_until_us, fence, stop_asked, created_us, finished_us,
    steers)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?, ?);

-- name: find_hold
SELECT no, thread_no, status, fence, lease_until_us, stop_asked FROM turns
WHERE tenant_id = ? AND id = ? AND (owner_id = ? OR ?);

-- name: find_earlier_turn
SELECT 1 FROM turns INDEXED BY turns_active
WHERE tenant_id = ? AND thread_no = ? AND no < ? AND status IN ('accepted', 'running') LIMIT 1;

-- name: lease_turn
UPDATE turns SET status = 'running', fence = fence + 1, lease_owner = ?, lease_until_us = ? WHERE no = ?;

-- name: renew_lease
UPDATE turns SET lease_owner = ?, lease_until_us = ? WHERE no = ?;

-- name: find_leases
SELECT no, id FROM turns INDEXED BY turns_active
WHERE tenant_id = ? AND status IN ('accepted', 'running') AND lease_owner = ? AND (owner_id = ? OR ?)
    AND lease_until_us > ? AND (? IS NULL OR id = ?);

-- name: expire_lease
UPDATE turns SET lease_until_us = ? WHERE no = ?;

-- name: list_lease_workers
SELECT DISTINCT lease_owner FROM turns INDEXED BY turns_active
WHERE tenant_id = ? AND status IN ('accepted', 'running') AND lease_owner IS NOT NULL AND (owner_id = ? OR ?)
ORDER BY lease_owner;

-- name: continue_interrupted
UPDATE turns SET status = 'running', error = NULL, reply_seq = NULL, finished_us = NULL, stop_asked = 0,
    fence = fence + 1, lease_owner = ?, lease_until_us = ?
WHERE no = ?;

-- name: release_lease
UPDATE turns SET lease_owner = NULL, lease_until_us = ? WHERE no = ?;

-- name: finish_turn
UPDATE turns SET status = ?, error = ?, usage = ?, seen = ?, reply_seq = ?, provider = ?, model = coalesce(?, model),
    finished_us = ?
WHERE no = ?;

-- name: end_taken_turn
UPDATE turns SET status = ?, seen = ?, reply_seq = ?, finished_us = ?
WHERE tenant_id = ? AND thread_no = ? AND id = ? AND steers = ? AND reply_seq IS NULL
    AND status IN ('accepted', 'interrupted');

-- name: settle_taken_arrival
UPDATE inbox SET status = 'done', decision = ?, updated_us = ? WHERE tenant_id = ? AND turn_id = ? AND status = 'accepted';

-- name: stop_turn
UPDATE turns SET stop_asked = 1,
    finished_us = CASE status WHEN 'accepted' THEN ? END,
    status = CASE status WHEN 'accepted' THEN 'stopped' ELSE status END
WHERE no = ?;

-- name: add_chunk
INSERT INTO turn_chunks (turn_no, n, chunk) VALUES (?, ?, ?) ON CONFLICT DO NOTHING;

-- name: read_chunks
SELECT c.n, c.chunk FROM turns t JOIN turn_chunks c ON c.turn_no = t.no
WHERE t.tenant_id = ? AND t.id = ? AND (t.owner_id = ? OR ?) AND c.n > ? ORDER BY c.n LIMIT ?;

-- name: drop_chunks
DELETE FROM turn_chunks WHERE turn_no IN (
    SELECT DISTINCT c.turn_no FROM turn_chunks c CROSS JOIN turns t ON t.no = c.turn_no
    WHERE t.tenant_id = ? AND (t.owner_id = ? OR ?) AND t.finished_us < ?
);

-- name: find_tool_run
SELECT t.id AS turn_id, r.call_id, r.name, r.input, r.repeatable, r.output, r.finished_us
FROM tool_runs r JOIN turns t ON t.no = r.turn_no WHERE r.turn_no = ? AND r.call_id = ?;

-- name: add_tool_run
INSERT INTO tool_runs (turn_no, call_id, name, input, repeatable) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: finish_tool_run
UPDATE tool_runs SET output = ?, finished_us = ? WHERE turn_no = ? AND call_id = ?;

-- name: list_tool_runs
SELECT t.id AS turn_id, r.call_id, r.name, r.input, r.repeatable, r.output, r.finished_us
FROM turns t JOIN tool_runs r ON r.turn_no = t.no
WHERE t.tenant_id = ? AND t.id = ? AND (t.owner_id = ? OR ?) ORDER BY r.no;

-- name: put_summary
INSERT INTO summaries (timeline_no, seq, text, created_us, source, model) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (timeline_no, seq) DO UPDATE SET text = excluded.text, created_us = excluded.created_us,
    source = excluded.source, model = excluded.model;

-- name: find_summary
-- The loops run from the newest segment to the oldest and down the index, so the first row covers most.
SELECT l.id AS timeline_id, x.seq, x.text, x.created_us, x.source, x.model
FROM carray(?1) s CROSS JOIN summaries x INDEXED BY summaries_by_seq CROSS JOIN timelines l ON l.no = x.timeline_no
WHERE x.timeline_no = s.value >> 32 AND x.seq <= s.value & 4294967295 LIMIT 1;

-- name: claim_compaction
UPDATE threads SET compacting_until_us = ?3 + ?4
WHERE no = ?1 AND (?2 OR compacting_until_us IS NULL OR compacting_until_us <= ?3);
