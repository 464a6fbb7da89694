-- name: put_credentials
INSERT INTO credentials (tenant_id, platform, key_id, sealed, updated_us) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET key_id = excluded.key_id, sealed = excluded.sealed, updated_us = excluded.updated_us;

-- name: find_credentials
SELECT platform, key_id, sealed, updated_us FROM credentials WHERE tenant_id = ? AND platform = ?;

-- name: list_credentials
SELECT platform, key_id, sealed, updated_us FROM credentials WHERE tenant_id = ? ORDER BY platform;

-- name: delete_credentials
DELETE FROM credentials WHERE tenant_id = ? AND platform = ?;
