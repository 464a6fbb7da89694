-- name: notify
SELECT pg_notify('threadline', payload) FROM unnest($1::text[]) AS payload
