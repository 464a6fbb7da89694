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
INSERT INTO tool_runs (turn_no, call_id, name, input, repeatable) VALUES (?, ?, ?, ?, ?);

-- name: finish_tool_run
UPDATE tool_runs SET output = ?, finished_us = ? WHERE turn_no = ? AND call_id = ?;

-- name: list_tool_runs
SELECT t.id AS turn_id, r.call_id, r.name, r.input, r.repeatable, r.output, r.finished_us
FROM turns t JOIN tool_runs r ON r.turn_no = t.no
WHERE t.tenant_id = ? AND t.id = ? AND (t.owner_id = ? OR ?) ORDER BY r.no;

-- name: put_summary
INSERT INTO summaries (timeline_no, seq, text, created_us) VALUES (?, ?, ?, ?)
ON CONFLICT (timeline_no, seq) DO UPDATE SET text = excluded.text, created_us = excluded.created_us;

-- name: find_summary
-- The loops run from the newest segment to the oldest and down the index, so the first row covers most.
SELECT l.id AS timeline_id, x.seq, x.text, x.created_us
FROM carray(?1) s CROSS JOIN summaries x INDEXED BY summaries_by_seq CROSS JOIN timelines l ON l.no = x.timeline_no
WHERE x.timeline_no = s.value >> 32 AND x.seq <= s.value & 4294967295 LIMIT 1;
