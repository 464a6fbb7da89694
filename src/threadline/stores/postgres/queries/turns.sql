-- name: find_turn
SELECT id, owner_id, thread_id, surface, agent_id, status, idempotency_key, request_hash, request_seq, reply_seq,
    error, usage, seen, lease_owner, lease_until, fence, created_at, finished_at, provider, model, steers
FROM threadline.find_turn($1, $2, $3, $4)

-- name: find_turn_by_key
SELECT id, owner_id, thread_id, surface, agent_id, status, idempotency_key, request_hash, request_seq, reply_seq,
    error, usage, seen, lease_owner, lease_until, fence, created_at, finished_at, provider, model, steers
FROM threadline.turns WHERE tenant_id = $1 AND owner_id = $2 AND idempotency_key = $3

-- name: list_active_turns
SELECT id, owner_id, thread_id, surface, agent_id, status, idempotency_key, request_hash, request_seq, reply_seq,
    error, usage, seen, lease_owner, lease_until, fence, created_at, finished_at, provider, model, steers
FROM threadline.active_turns($1, $2, $3, $4)

-- name: list_turns
SELECT id, owner_id, thread_id, surface, agent_id, status, idempotency_key, request_hash, request_seq, reply_seq,
    error, usage, seen, lease_owner, lease_until, fence, created_at, finished_at, provider, model, steers
FROM threadline.turns WHERE tenant_id = $1 AND thread_id = $2 ORDER BY place DESC LIMIT $3

-- name: list_surfaces
SELECT t.id, array_agg(DISTINCT r.surface ORDER BY r.surface) AS surfaces
FROM threadline.threads t CROSS JOIN LATERAL (
    SELECT surface FROM threadline.turns
    WHERE tenant_id = $1 AND thread_id = t.id ORDER BY place DESC LIMIT 50
) r
WHERE t.tenant_id = $1 AND t.id = ANY ($2::text[]) AND t.deleted_at IS NULL
GROUP BY t.id

-- name: list_due_turns
SELECT id, owner_id, thread_id, surface, agent_id, status, idempotency_key, request_hash, request_seq, reply_seq,
    error, usage, seen, lease_owner, lease_until, fence, created_at, finished_at, provider, model, steers
FROM threadline.turns
WHERE tenant_id = $1 AND status IN ('accepted', 'running') AND (
    lease_until IS NULL OR lease_until <= coalesce($2, now())
    OR lease_until > coalesce($2, now()) + 2 * make_interval(secs => $3)
)
ORDER BY place LIMIT $4

-- name: lease_turn
SELECT id, owner_id, thread_id, surface, agent_id, status, idempotency_key, request_hash, request_seq, reply_seq,
    error, usage, seen, lease_owner, lease_until, fence, created_at, finished_at, provider, model, steers
FROM threadline.lease_turn($1, $2, $3, $4, $5, $6, $7)

-- name: claim_turns
SELECT id, owner_id, thread_id, surface, agent_id, status, idempotency_key, request_hash, request_seq, reply_seq,
    error, usage, seen, lease_owner, lease_until, fence, created_at, finished_at, provider, model, steers
FROM threadline.claim_turns($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: lease_time
SELECT threadline.lease_time($1, $2, $3)

-- name: renew_lease
SELECT threadline.renew_lease($1, $2, $3, $4, $5, $6, $7, $8)

-- name: expire_leases
SELECT threadline.expire_leases($1, $2, $3, $4)

-- name: list_lease_workers
SELECT DISTINCT lease_owner FROM threadline.turns
WHERE tenant_id = $1 AND status IN ('accepted', 'running') AND lease_owner IS NOT NULL ORDER BY lease_owner

-- name: release_lease
SELECT threadline.release_lease($1, $2, $3, $4)

-- name: request_stop
SELECT thread_id FROM threadline.request_stop($1, $2, $3)

-- name: is_stop_requested
SELECT threadline.is_stop_requested($1, $2, $3, $4)

-- name: put_chunks
SELECT threadline.put_chunks($1, $2, $3, $4, $5, $6, $7)

-- name: read_chunks
SELECT n, chunk FROM threadline.read_chunks($1, $2, $3, $4, $5, $6)

-- name: drop_chunks
SELECT threadline.drop_chunks($1, $2, $3)

-- name: lock_fence
SELECT owner_id FROM threadline.turns WHERE tenant_id = $1 AND id = $2 AND fence = $3 FOR SHARE

-- name: add_tool_run
INSERT INTO threadline.tool_runs (tenant_id, turn_id, call_id, owner_id, name, input, repeatable)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING
RETURNING turn_id, call_id, name, input, repeatable, output, finished_at

-- name: find_tool_run
SELECT turn_id, call_id, name, input, repeatable, output, finished_at FROM threadline.tool_runs
WHERE tenant_id = $1 AND turn_id = $2 AND call_id = $3

-- name: finish_tool_run
UPDATE threadline.tool_runs SET output = $4, finished_at = $5
WHERE tenant_id = $1 AND turn_id = $2 AND call_id = $3
RETURNING turn_id

-- name: list_tool_runs
SELECT turn_id, call_id, name, input, repeatable, output, finished_at FROM threadline.tool_runs
WHERE tenant_id = $1 AND turn_id = $2 ORDER BY place

-- name: find_history
SELECT t.message_count, t.owner_id, l.id, l.ancestors, l.ancestor_seqs
FROM threadline.threads t JOIN threadline.timelines l ON l.tenant_id = $1 AND l.id = t.timeline_id
WHERE t.tenant_id = $1 AND t.id = $2 AND t.deleted_at IS NULL

-- name: put_summary
INSERT INTO threadline.summaries (tenant_id, timeline_id, seq, owner_id, text, created_at, source, model)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (tenant_id, timeline_id, seq) DO UPDATE SET text = excluded.text, created_at = excluded.created_at,
    source = excluded.source, model = excluded.model
RETURNING timeline_id, seq, text, created_at, source, model

-- name: lock_thread
SELECT FROM threadline.threads WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL FOR UPDATE

-- name: newest_summary
SELECT s.timeline_id, s.seq, s.text, s.created_at, s.source, s.model
FROM unnest($2::text[], $3::integer[]) AS shown (timeline_id, last)
JOIN threadline.summaries s ON s.tenant_id = $1 AND s.timeline_id = shown.timeline_id AND s.seq <= shown.last
ORDER BY s.seq DESC LIMIT 1

-- name: claim_compaction
SELECT threadline.claim_compaction($1, $2, $3, $4, $5)

-- name: find_summary
SELECT timeline_id, seq, text, created_at, source, model FROM threadline.find_summary($1, $2, $3, $4)
