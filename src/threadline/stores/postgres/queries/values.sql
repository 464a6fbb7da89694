-- name: write_values
SELECT * FROM threadline.write_values($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)

-- name: read_values
SELECT * FROM threadline.read_values($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: list_values
SELECT * FROM threadline.list_values($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)

-- name: list_value_namespaces
SELECT problem, namespace FROM threadline.list_value_namespaces($1, $2, $3, $4, $5, $6)

-- name: drop_expired_values
SELECT threadline.drop_expired_values($1, $2, $3, $4) AS removed
