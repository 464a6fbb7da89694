-- name: search_messages
SELECT thread_id, state_key, title, message_id, seq, role, parts, created_us, hidden
FROM threadline.search_messages($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)

-- name: unindexed_messages
SELECT timeline_id, seq, parts FROM threadline.unindexed_messages($1, $2)

-- name: index_messages
SELECT threadline.index_messages($1, $2, $3, $4, $5)

-- name: search_threads
SELECT thread_id, state_key, title, updated_us, is_title, hit_count, message_id, seq, role, parts,
    created_us, hidden
FROM threadline.search_threads($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- name: unindexed_titles
SELECT thread_id, title FROM threadline.unindexed_titles($1, $2)

-- name: index_titles
SELECT threadline.index_titles($1, $2, $3, $4)
