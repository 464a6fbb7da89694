-- name: list_past_turns
SELECT r.id, r.owner_id, t.id AS thread_id, r.surface, r.agent_id, r.status, r.idempotency_key, r.request_hash, r.request_seq,
    r.reply_seq, r.error, r.usage, r.seen, r.lease_owner, r.lease_until_us, r.fence, r.created_us, r.finished_us,
    r.provider, r.model, r.steers
FROM threads t CROSS JOIN turns r INDEXED BY turns_by_thread ON r.thread_no = t.no
WHERE t.tenant_id = ?1 AND t.id = ?2 AND (t.owner_id = ?3 OR ?4)
    AND (?5 IS NULL OR r.no > (SELECT a.no FROM turns a WHERE a.tenant_id = ?1 AND a.id = ?5))
ORDER BY r.no LIMIT ?6;

-- name: list_summaries
WITH RECURSIVE own (no, id, earlier_no) AS (
    SELECT l.no, l.id, l.earlier_no FROM threads t JOIN timelines l ON l.no = t.newest_timeline_no
    WHERE t.tenant_id = ? AND t.id = ? AND (t.owner_id = ? OR ?)
    UNION ALL
    SELECT l.no, l.id, l.earlier_no FROM own JOIN timelines l ON l.no = own.earlier_no
)
SELECT own.id AS timeline_id, s.seq, s.text, s.created_us, s.source, s.model
FROM own CROSS JOIN summaries s INDEXED BY summaries_by_seq ON s.timeline_no = own.no ORDER BY own.no, s.seq;

-- name: list_points
WITH RECURSIVE own (no, id, thread_id, owner_id, earlier_no) AS (
    SELECT l.no, l.id, t.id, t.owner_id, l.earlier_no FROM threads t JOIN timelines l ON l.no = t.newest_timeline_no
    WHERE t.tenant_id = ?1 AND t.id = ?2 AND (t.owner_id = ?3 OR ?4)
    UNION ALL
    SELECT l.no, l.id, own.thread_id, own.owner_id, l.earlier_no FROM own JOIN timelines l ON l.no = own.earlier_no
)
SELECT p.name, own.id AS timeline_id, p.seq, own.thread_id, p.created_us
FROM own CROSS JOIN saved_points p INDEXED BY saved_points_by_timeline ON p.timeline_no = own.no
WHERE p.tenant_id = ?1 AND p.owner_id = own.owner_id ORDER BY p.name;

-- name: find_turn_thread
SELECT thread_no FROM turns WHERE tenant_id = ? AND id = ?;

-- name: add_past_turn
INSERT INTO turns (tenant_id, id, owner_id, thread_no, surface, agent_id, status, error, usage, request_seq, reply_seq,
    created_us, finished_us, provider, model, fence, stop_asked)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0);

-- name: add_point
INSERT INTO saved_points (tenant_id, owner_id, name, timeline_no, seq, created_us) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: add_summary
INSERT INTO summaries (timeline_no, seq, text, created_us, source, model) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: date_thread
UPDATE threads SET updated_us = ?, archived_us = ?, deleted_us = ?, token_count = ? WHERE no = ?;
