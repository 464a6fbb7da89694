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

-- name: read_message
SELECT id, role, timeline_no, seq, parts, metadata, turn_id, created_us FROM messages WHERE no = ?;

-- name: name_timelines
SELECT l.no, l.id FROM carray(?1) s CROSS JOIN timelines l ON l.no = s.value;
