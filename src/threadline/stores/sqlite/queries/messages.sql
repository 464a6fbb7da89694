-- name: find_append_key
SELECT k.timeline_no, l.id, k.first_seq, k.message_count, k.digest
FROM append_keys k JOIN timelines l ON l.no = k.timeline_no
WHERE k.thread_no = ? AND k.key = ?;

-- name: add_append_key
INSERT INTO append_keys (thread_no, key, timeline_no, first_seq, message_count, digest) VALUES (?, ?, ?, ?, ?, ?);

-- name: read_ids
SELECT id FROM messages WHERE timeline_no = ? AND seq BETWEEN ? AND ? ORDER BY seq;

-- name: find_by_id
SELECT timeline_no, seq, no FROM messages WHERE id = ?;

-- name: read_content
SELECT role, parts FROM messages WHERE no = ?;

-- name: add_message
INSERT INTO messages (timeline_no, seq, role, created_us, id, turn_id, metadata, parts) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: advance_head
UPDATE threads SET message_count = ?, token_count = token_count + ?, updated_us = ? WHERE no = ?;

-- name: title_thread
UPDATE threads SET title = ? WHERE no = ?;

-- name: read_history_backwards
-- The loops run in the order of the segments and down the index, so the newest come first without a sort.
SELECT m.id, m.role, m.timeline_no, m.seq, m.parts, m.metadata, m.turn_id, m.created_us
FROM carray(?1) s CROSS JOIN messages m INDEXED BY messages_by_seq
WHERE m.timeline_no = s.value >> 32 AND m.seq <= s.value & 4294967295 AND m.seq >= ?2;

-- name: read_newest
-- From the head down through the lineage, as far as rows are taken: the loops run from each timeline to its base and
-- down the index, so no row is sorted and none is read that is not asked for.
WITH RECURSIVE walk (no, id, top, base_no, base_seq) AS (
    SELECT l.no, l.id, min(t.message_count, ?5) - 1, l.base_no, l.base_seq
    FROM threads t JOIN timelines l ON l.no = t.timeline_no
    WHERE t.tenant_id = ?1 AND t.id = ?2 AND (t.owner_id = ?3 OR ?4) AND t.deleted_us IS NULL
    UNION ALL
    SELECT l.no, l.id, min(walk.top, walk.base_seq), l.base_no, l.base_seq
    FROM walk JOIN timelines l ON l.no = walk.base_no
)
SELECT m.id, m.role, walk.id, m.seq, m.parts, m.metadata, m.turn_id, m.created_us
FROM walk CROSS JOIN messages m INDEXED BY messages_by_seq
WHERE m.timeline_no = walk.no AND m.seq <= walk.top;

-- name: read_message
SELECT id, role, timeline_no, seq, parts, metadata, turn_id, created_us FROM messages WHERE no = ?;

-- name: name_timelines
SELECT l.no, l.id FROM carray(?1) s CROSS JOIN timelines l ON l.no = s.value;
