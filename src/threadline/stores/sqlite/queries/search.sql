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

-- name: read_hit
SELECT id, seq, role, parts, created_us FROM messages WHERE no = ?;

-- name: find_place
-- A branch belongs to the owner of its source, so a history never contains another owner's messages.
SELECT m.timeline_no, m.seq, l.thread_no FROM messages m JOIN timelines l ON l.no = m.timeline_no
WHERE m.no = ? AND l.tenant_id = ? AND l.owner_id = ?;

-- name: find_present
-- A thread of the owner's, and where it stands now.
SELECT c.no, c.ancestors, t.id, t.state_key, t.title
FROM threads t JOIN timelines c ON c.no = t.timeline_no
WHERE t.no = ? AND t.tenant_id = ? AND t.owner_id = ? AND t.deleted_us IS NULL;

-- name: list_branches_of_thread
WITH RECURSIVE own (no, earlier_no) AS (
    SELECT l.no, l.earlier_no FROM threads t JOIN timelines l ON l.no = t.newest_timeline_no WHERE t.no = ?1
    UNION ALL
    SELECT l.no, l.earlier_no FROM own JOIN timelines l ON l.no = own.earlier_no
)
SELECT b.no, b.ancestors, b.thread_no
FROM own CROSS JOIN timelines b INDEXED BY timelines_by_base ON b.base_no = own.no
WHERE b.keeps_base AND b.thread_no IS NOT ?1;

-- name: list_branches_of_timeline
SELECT no, ancestors, thread_no FROM timelines WHERE base_no = ? AND keeps_base;
