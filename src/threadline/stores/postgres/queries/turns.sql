-- name: lock_thread
SELECT owner_id FROM threadline.threads WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL FOR NO KEY UPDATE

-- name: add_turn
INSERT INTO threadline.turns (tenant_id, id, owner_id, thread_id, surface, agent_id, status, idempotency_key,
    request_hash, request_seq, created_at, finished_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING
RETURNING id, owner_id, thread_id, surface, agent_id, status, idempotency_key, request_hash, request_seq, reply_seq,
    error, usage, seen, lease_owner, lease_until, fence, created_at, finished_at

-- name: find_turn
SELECT id, owner_id, thread_id, surface, agent_id, status, idempotency_key, request_hash, request_seq, reply_seq,
    error, usage, seen, lease_owner, lease_until, fence, created_at, finished_at
FROM threadline.find_turn($1, $2, $3, $4)

-- name: find_turn_by_key
SELECT id, owner_id, thread_id, surface, agent_id, status, idempotency_key, request_hash, request_seq, reply_seq,
    error, usage, seen, lease_owner, lease_until, fence, created_at, finished_at
FROM threadline.turns WHERE tenant_id = $1 AND owner_id = $2 AND idempotency_key = $3

-- name: list_active_turns
SELECT id, owner_id, thread_id, surface, agent_id, status, idempotency_key, request_hash, request_seq, reply_seq,
    error, usage, seen, lease_owner, lease_until, fence, created_at, finished_at
FROM threadline.active_turns($1, $2, $3, $4)

-- name: list_turns
SELECT id, owner_id, thread_id, surface, agent_id, status, idempotency_key, request_hash, request_seq, reply_seq,
    error, usage, seen, lease_owner, lease_until, fence, created_at, finished_at
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
    error, usage, seen, lease_owner, lease_until, fence, created_at, finished_at
FROM threadline.turns
WHERE tenant_id = $1 AND status IN ('accepted', 'running') AND (status = 'accepted' OR lease_until <= $2)
ORDER BY place LIMIT $3

-- name: lease_turn
SELECT id, owner_id, thread_id, surface, agent_id, status, idempotency_key, request_hash, request_seq, reply_seq,
    error, usage, seen, lease_owner, lease_until, fence, created_at, finished_at
FROM threadline.lease_turn($1, $2, $3, $4, $5, $6, $7)

-- name: renew_lease
SELECT threadline.renew_lease($1, $2, $3, $4, $5, $6)

-- name: release_lease
UPDATE threadline.turns SET lease_owner = NULL, lease_until = $4
WHERE tenant_id = $1 AND id = $2 AND fence = $3 AND status IN ('accepted', 'running')
RETURNING threadline.notify($1, id)

-- name: request_stop
UPDATE threadline.turns SET stop_asked = true,
    finished_at = CASE status WHEN 'accepted' THEN $3::timestamptz END,
    status = CASE status WHEN 'accepted' THEN 'stopped' ELSE status END
WHERE tenant_id = $1 AND id = $2 AND status IN ('accepted', 'running')
RETURNING thread_id, threadline.notify($1, id)

-- name: is_stop_requested
SELECT threadline.is_stop_requested($1, $2, $3, $4)
