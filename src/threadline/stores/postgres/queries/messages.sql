-- name: append
SELECT threadline.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)

-- name: append_together
SELECT threadline.append_together($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)

-- name: append_carefully
SELECT problem, timeline_id, first_seq, message_ids
FROM threadline.append_carefully($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)

-- name: read_messages
SELECT id, role, timeline_id, seq, parts, metadata, turn_id, created_us
FROM threadline.read_messages($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: read_newest
SELECT id, role, timeline_id, seq, parts, metadata, turn_id, created_us
FROM threadline.read_newest($1, $2, $3, $4, $5, $6)

-- name: find_message
SELECT id, role, timeline_id, seq, parts, metadata, turn_id, created_us
FROM threadline.find_message($1, $2, $3, $4, $5)
