-- name: append
SELECT timeline_id, first_seq, token_count, title FROM threadline.append($1, $2, $3, $4, $5)

-- name: append_batch
SELECT timeline_id, first_seq, token_count, title FROM threadline.append_batch($1, $2, $3, $4, $5)

-- name: append_locked
SELECT problem, timeline_id, first_seq, message_ids, (thread).timeline_id AS thread_timeline_id,
    (thread).message_count, (thread).token_count, (thread).title, (thread).updated_at
FROM threadline.append_locked($1, $2, $3, $4, $5)

-- name: append_after
SELECT problem, timeline_id, first_seq, message_ids, (thread).timeline_id AS thread_timeline_id,
    (thread).message_count, (thread).token_count, (thread).title, (thread).updated_at
FROM threadline.append_after($1, $2, $3, $4, $5, $6, $7, $8)

-- name: read_messages
SELECT id, role, timeline_id, seq, parts, metadata, turn_id, created_us, hidden
FROM threadline.read_messages($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: read_newest
SELECT id, role, timeline_id, seq, parts, metadata, turn_id, created_us, hidden
FROM threadline.read_newest($1, $2, $3, $4, $5, $6)

-- name: find_message
SELECT id, role, timeline_id, seq, parts, metadata, turn_id, created_us, hidden
FROM threadline.find_message($1, $2, $3, $4, $5)
