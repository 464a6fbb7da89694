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
