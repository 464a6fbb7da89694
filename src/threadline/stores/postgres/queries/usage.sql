-- name: count_usage
SELECT threadline.count_usage($1, $2, $3, $4, $5::text::jsonb)

-- name: read_usage
SELECT * FROM threadline.read_usage($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)

-- name: sum_usage
SELECT * FROM threadline.sum_usage($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
