-- name: put_chunks
SELECT threadline.put_chunks($1, $2, $3, $4, $5, $6, $7)

-- name: read_chunks
SELECT n, chunk FROM threadline.read_chunks($1, $2, $3, $4, $5, $6)

-- name: drop_chunks
DELETE FROM threadline.turn_chunks c USING threadline.turns t
WHERE c.tenant_id = $1 AND t.tenant_id = $1 AND t.id = c.turn_id AND t.finished_at < $2

-- name: lock_fence
SELECT owner_id FROM threadline.turns WHERE tenant_id = $1 AND id = $2 AND fence = $3 FOR SHARE

-- name: add_tool_run
INSERT INTO threadline.tool_runs (tenant_id, turn_id, call_id, owner_id, name, input, repeatable)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING
RETURNING turn_id, call_id, name, input, repeatable, output, finished_at, threadline.notify($1, turn_id)

-- name: find_tool_run
SELECT turn_id, call_id, name, input, repeatable, output, finished_at FROM threadline.tool_runs
WHERE tenant_id = $1 AND turn_id = $2 AND call_id = $3

-- name: finish_tool_run
UPDATE threadline.tool_runs SET output = $4, finished_at = $5
WHERE tenant_id = $1 AND turn_id = $2 AND call_id = $3
RETURNING threadline.notify($1, turn_id)

-- name: list_tool_runs
SELECT turn_id, call_id, name, input, repeatable, output, finished_at FROM threadline.tool_runs
WHERE tenant_id = $1 AND turn_id = $2 ORDER BY place

-- name: find_history
SELECT t.message_count, t.owner_id, l.id, l.ancestors, l.ancestor_seqs
FROM threadline.threads t JOIN threadline.timelines l ON l.tenant_id = $1 AND l.id = t.timeline_id
WHERE t.tenant_id = $1 AND t.id = $2 AND t.deleted_at IS NULL

-- name: put_summary
INSERT INTO threadline.summaries (tenant_id, timeline_id, seq, owner_id, text, created_at)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant_id, timeline_id, seq) DO UPDATE SET text = excluded.text, created_at = excluded.created_at
RETURNING timeline_id, seq, text, created_at

-- name: find_summary
SELECT timeline_id, seq, text, created_at FROM threadline.find_summary($1, $2, $3, $4)
