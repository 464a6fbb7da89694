-- name: add_token
INSERT INTO api_tokens (tenant_id, id, owner_id, token_hash, name, role, created_us, expires_us, acts_for_users)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: find_token
SELECT id, owner_id, name, role, created_us, expires_us, last_used_us, revoked_us, acts_for_users FROM api_tokens
WHERE tenant_id = ? AND token_hash = ?;

-- name: list_tokens
SELECT id, owner_id, name, role, created_us, expires_us, last_used_us, revoked_us, acts_for_users FROM api_tokens
WHERE tenant_id = ? ORDER BY id DESC;

-- name: revoke_token
UPDATE api_tokens SET revoked_us = ? WHERE tenant_id = ? AND id = ? AND revoked_us IS NULL;

-- name: note_use
UPDATE api_tokens SET last_used_us = ?1 WHERE tenant_id = ?2 AND id = ?3 AND coalesce(last_used_us, 0) < ?1;

-- name: find_permits
SELECT window_us, taken FROM permits WHERE tenant_id = ? AND key = ?;

-- name: put_permits
INSERT INTO permits (tenant_id, key, window_us, taken) VALUES (?, ?, ?, ?)
ON CONFLICT (tenant_id, key) DO UPDATE SET window_us = excluded.window_us, taken = excluded.taken;

-- name: drop_permits
DELETE FROM permits WHERE tenant_id = ? AND window_us < ?;

-- name: add_act
INSERT INTO audit (tenant_id, id, actor_id, act, target, details, created_us) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: list_acts
SELECT id, actor_id, act, target, details, created_us FROM audit WHERE tenant_id = ?1 AND (?2 IS NULL OR id < ?2)
UNION ALL
SELECT id, actor_id, 'tenant.purged', tenant_id, details, created_us FROM tenant_purges
WHERE tenant_id = ?1 AND (?2 IS NULL OR id < ?2)
ORDER BY id DESC LIMIT ?3;

-- name: put_credentials
INSERT INTO credentials (tenant_id, platform, key_id, sealed, updated_us) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET key_id = excluded.key_id, sealed = excluded.sealed, updated_us = excluded.updated_us;

-- name: find_credentials
SELECT platform, key_id, sealed, updated_us FROM credentials WHERE tenant_id = ? AND platform = ?;

-- name: list_credentials
SELECT platform, key_id, sealed, updated_us FROM credentials WHERE tenant_id = ? ORDER BY platform;

-- name: delete_credentials
DELETE FROM credentials WHERE tenant_id = ? AND platform = ?;
