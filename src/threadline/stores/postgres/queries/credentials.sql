-- name: put_credentials
INSERT INTO threadline.credentials (tenant_id, platform, key_id, sealed, updated_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant_id, platform)
DO UPDATE SET key_id = excluded.key_id, sealed = excluded.sealed, updated_at = excluded.updated_at
RETURNING platform, key_id, sealed, updated_at

-- name: find_credentials
SELECT platform, key_id, sealed, updated_at FROM threadline.find_credentials($1, $2, $3, $4)

-- name: list_credentials
SELECT platform, key_id, sealed, updated_at FROM threadline.credentials WHERE tenant_id = $1 ORDER BY platform

-- name: delete_credentials
DELETE FROM threadline.credentials WHERE tenant_id = $1 AND platform = $2
