-- name: hide_parts
SELECT threadline.hide_parts($1, $2, $3, $4, $5, $6, $7, $8, $9) AS added

-- name: is_turn_hidden
SELECT threadline.is_turn_hidden($1, $2, $3, $4) AS is_hidden
