-- name: read_progress
SELECT indexed_no, recipe FROM search_progress;

-- name: is_pending
SELECT coalesce((SELECT max(no) FROM messages), 0) > indexed_no OR recipe <> ?
    OR EXISTS (SELECT 1 FROM threads INDEXED BY threads_to_index WHERE title IS NOT indexed_title)
FROM search_progress;

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

-- name: rank_newest
SELECT rowid, closeness(message_words, ?1) FROM message_words WHERE message_words MATCH ?2 ORDER BY rowid DESC LIMIT ?3;

-- name: read_hit
SELECT id, seq, role, parts, created_us FROM messages WHERE no = ?;

-- name: find_place
-- A branch belongs to the owner of its source, so a history never contains another owner's messages.
SELECT m.timeline_no, m.seq, l.thread_no FROM messages m JOIN timelines l ON l.no = m.timeline_no
WHERE m.no = ? AND l.tenant_id = ? AND l.owner_id = ?;

-- name: find_present
-- A thread of the owner's, and where it stands now.
SELECT c.no, c.ancestors, t.no, t.id, t.state_key, t.title, t.updated_us
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

-- name: read_unindexed_titles
SELECT no, tenant_id, owner_id, title FROM threads INDEXED BY threads_to_index WHERE title IS NOT indexed_title LIMIT ?;

-- name: remove_title
DELETE FROM title_words WHERE rowid = ?;

-- name: add_title
INSERT INTO title_words (rowid, owner, words) VALUES (?, ?, ?);

-- name: note_title
UPDATE threads SET indexed_title = ? WHERE no = ?;

-- name: forget_titles
UPDATE threads SET indexed_title = NULL;

-- name: find_titles
SELECT rowid FROM title_words WHERE title_words MATCH ? ORDER BY rowid DESC LIMIT ?;

-- name: matches_filter
SELECT EXISTS (
    SELECT 1 FROM threads t
    WHERE t.no = ?1 AND (?2 IS NULL OR t.updated_us >= ?2) AND (?5 IS NULL OR t.updated_us < ?5)
        AND (?3 IS NULL OR EXISTS (
            SELECT 1 FROM turns r INDEXED BY turns_by_owner
            WHERE r.tenant_id = t.tenant_id AND r.owner_id = t.owner_id AND r.surface = ?3 AND r.thread_no = t.no
        ))
        AND (?4 IS NULL OR NOT EXISTS (
            SELECT 1 FROM json_each(?4) w WHERE NOT EXISTS (
                SELECT 1 FROM thread_labels f
                WHERE f.tenant_id = t.tenant_id AND f.label = w.value AND f.owner_id = t.owner_id AND f.thread_no = t.no
            )
        ))
);
