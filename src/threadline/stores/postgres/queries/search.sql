-- name: search_messages
SELECT thread_id, state_key, title, message_id, seq, role, parts, created_us, hidden
FROM threadline.search_messages($1, $2, $3, $4, $5, $6, $7)

-- name: unindexed_messages
SELECT timeline_id, seq, parts FROM threadline.unindexed_messages($1, $2)

-- name: index_messages
SELECT threadline.index_messages($1, $2, $3, $4, $5)
