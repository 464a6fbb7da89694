-- name: purge_thread
SELECT threadline.purge_threads($1, ARRAY[$2])

-- name: purge_owner
SELECT threadline.purge_owner($1, $2)

-- name: purge_tenant
SELECT threadline.purge_tenant($1)

-- name: count_rows
SELECT tablename, counted FROM threadline.count_rows($1)
