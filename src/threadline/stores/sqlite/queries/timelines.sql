-- name: move_thread
-- A timeline that was just made has the highest number of all.
UPDATE threads SET timeline_no = ?1, timeline_id = ?2, message_count = ?3, updated_us = ?4,
    newest_timeline_no = max(newest_timeline_no, ?1)
WHERE no = ?5;

-- name: list_timelines
-- Newest first.
WITH RECURSIVE own (no, id, parent_id, parent_seq, ancestors, created_us, earlier_no) AS (
    SELECT no, id, parent_id, parent_seq, ancestors, created_us, earlier_no FROM timelines WHERE no = ?
    UNION ALL
    SELECT l.no, l.id, l.parent_id, l.parent_seq, l.ancestors, l.created_us, l.earlier_no
    FROM own JOIN timelines l ON l.no = own.earlier_no
)
SELECT no, id, parent_id, parent_seq, ancestors, created_us FROM own;

-- name: find_last_question
WITH RECURSIVE walk (no, top, base_no, base_seq) AS (
    SELECT no, ?2, base_no, base_seq FROM timelines WHERE no = ?1
    UNION ALL
    SELECT l.no, min(walk.top, walk.base_seq), l.base_no, l.base_seq
    FROM walk JOIN timelines l ON l.no = walk.base_no
)
SELECT m.seq FROM walk CROSS JOIN messages m INDEXED BY messages_by_seq
WHERE m.timeline_no = walk.no AND m.seq <= walk.top AND m.role = 0 LIMIT 1;

-- name: save_point
INSERT INTO saved_points (tenant_id, owner_id, name, timeline_no, seq, created_us) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant_id, owner_id, name) DO UPDATE
SET timeline_no = excluded.timeline_no, seq = excluded.seq, created_us = excluded.created_us;

-- name: find_saved_point
SELECT p.name, l.id AS timeline_id, p.seq, t.id AS thread_id, p.created_us
FROM saved_points p JOIN timelines l ON l.no = p.timeline_no JOIN threads t ON t.no = l.thread_no
WHERE p.tenant_id = ? AND p.owner_id = ? AND p.name = ?;

-- name: find_saved_place
SELECT p.seq, l.no, l.id, l.ancestors, l.thread_no FROM saved_points p JOIN timelines l ON l.no = p.timeline_no
WHERE p.tenant_id = ? AND p.owner_id = ? AND p.name = ?;

-- name: list_saved_points
SELECT p.name, l.id AS timeline_id, p.seq, t.id AS thread_id, p.created_us
FROM saved_points p JOIN timelines l ON l.no = p.timeline_no JOIN threads t ON t.no = l.thread_no
WHERE p.tenant_id = ? AND p.owner_id = ? ORDER BY p.name;

-- name: forget_saved_point
DELETE FROM saved_points WHERE tenant_id = ? AND owner_id = ? AND name = ?;
