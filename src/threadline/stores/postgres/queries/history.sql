-- name: list_past_turns
SELECT id, owner_id, thread_id, surface, agent_id, status, idempotency_key, request_hash, request_seq, reply_seq,
    error, usage, seen, lease_owner, lease_until, fence, created_at, finished_at, provider, model, steers
FROM threadline.turns
WHERE tenant_id = $1 AND thread_id = $2
    AND place > coalesce((SELECT a.place FROM threadline.turns a WHERE a.tenant_id = $1 AND a.id = $3), 0)
ORDER BY place LIMIT $4

-- name: list_summaries
SELECT s.timeline_id, s.seq, s.text, s.created_at, s.source, s.model
FROM threadline.timelines l
JOIN threadline.summaries s ON s.tenant_id = $1 AND s.timeline_id = l.id
WHERE l.tenant_id = $1 AND l.thread_id = $2 ORDER BY l.created_at, l.id, s.seq

-- name: list_points
SELECT name, timeline_id, seq, thread_id, created_at FROM threadline.saved_points
WHERE tenant_id = $1 AND thread_id = $2 ORDER BY name

-- name: lock_owner
SELECT owner_id FROM threadline.threads WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL FOR KEY SHARE

-- name: add_past_turns
SELECT threadline.add_past_turns($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)

-- name: list_own_turns
SELECT id FROM threadline.turns WHERE tenant_id = $1 AND thread_id = $2 AND id = ANY ($3::text[])

-- name: last_seq
SELECT threadline.last_seq_of($1, $2, $3) AS seq

-- name: add_point
INSERT INTO threadline.saved_points (tenant_id, owner_id, name, thread_id, timeline_id, seq, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING

-- name: find_lineage
SELECT ancestors, ancestor_seqs FROM threadline.timelines WHERE tenant_id = $1 AND id = $2

-- name: add_summary
INSERT INTO threadline.summaries (tenant_id, timeline_id, seq, owner_id, text, created_at, source, model)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING

-- name: date_thread
UPDATE threadline.threads SET updated_at = $3, archived_at = $4, deleted_at = $5, token_count = $6
WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL
