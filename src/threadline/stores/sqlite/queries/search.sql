-- name: read_progress
SELECT indexed_no, recipe FROM search_progress;

-- name: is_pending
SELECT coalesce((SELECT max(no) FROM messages), 0) > indexed_no OR recipe <> ? FROM search_progress;

-- name: read_pending
SELECT m.no, l.tenant_id, l.owner_id, m.parts
FROM messages m JOIN timelines l ON l.no = m.timeline_no
WHERE m.no > ? ORDER BY m.no LIMIT ?;

-- name: add_words
INSERT INTO message_words (rowid, owner, words) VALUES (?, ?, ?);

-- name: remove_words
INSERT INTO message_words (message_words, rowid, owner, words) VALUES ('delete', ?, ?, ?);

-- name: remove_from_pages
INSERT INTO message_words (message_words, rank) VALUES ('secure-delete', ?);

-- name: merge_everything
INSERT INTO message_words (message_words) VALUES ('optimize');

-- name: forget_everything
INSERT INTO message_words (message_words) VALUES ('delete-all');

-- name: write_progress
UPDATE search_progress SET indexed_no = ?, recipe = ?;

-- name: lower_progress
UPDATE search_progress SET indexed_no = min(indexed_no, coalesce((SELECT max(no) FROM messages), 0));

-- name: find_newest
SELECT rowid FROM message_words WHERE message_words MATCH ? ORDER BY rowid DESC LIMIT ?;

-- name: rank_from
SELECT rowid FROM message_words WHERE message_words MATCH ? AND rowid >= ?
ORDER BY closeness(message_words, ?) DESC, rowid DESC;

-- name: find_owning_thread
-- The thread whose timeline the message was written on, and where that thread stands now.
SELECT m.seq, l.no, c.no, c.ancestors, t.id, t.state_key, t.title
FROM messages m JOIN timelines l ON l.no = m.timeline_no JOIN threads t ON t.no = l.thread_no
    JOIN timelines c ON c.no = t.timeline_no
WHERE m.no = ? AND t.tenant_id = ? AND t.owner_id = ? AND t.deleted_us IS NULL;

-- name: find_showing_thread
-- A message is shown by its own timeline and by all that stem from it at or above its seq. Above a fork
-- everything counts, so only the first step looks at the seq.
WITH RECURSIVE shown (no, thread_no, least_seq) AS (
    SELECT l.no, l.thread_no, m.seq FROM messages m JOIN timelines l ON l.no = m.timeline_no WHERE m.no = ?1
    UNION ALL
    SELECT c.no, c.thread_no, 0 FROM shown JOIN timelines c ON c.base_no = shown.no AND c.base_seq >= shown.least_seq
)
SELECT t.id, t.state_key, t.title
FROM shown JOIN threads t ON t.no = shown.thread_no AND t.timeline_no = shown.no
WHERE t.tenant_id = ?2 AND t.owner_id = ?3 AND t.deleted_us IS NULL LIMIT 1;

-- name: read_hit
SELECT id, seq, role, parts, created_us FROM messages WHERE no = ?;
