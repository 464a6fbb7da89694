-- name: add_token
INSERT INTO threadline.api_tokens
    (tenant_id, id, owner_id, token_hash, name, role, created_at, expires_at, acts_for_users)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING
RETURNING id, owner_id, name, role, created_at, expires_at, last_used_at, revoked_at, acts_for_users

-- name: find_token
SELECT id, owner_id, name, role, created_at, expires_at, last_used_at, revoked_at, acts_for_users
FROM threadline.find_token($1, $2, $3, $4)

-- name: list_tokens
SELECT id, owner_id, name, role, created_at, expires_at, last_used_at, revoked_at, acts_for_users
FROM threadline.api_tokens
WHERE tenant_id = $1 ORDER BY id DESC

-- name: revoke_token
UPDATE threadline.api_tokens SET revoked_at = $3 WHERE tenant_id = $1 AND id = $2 AND revoked_at IS NULL

-- name: note_use
UPDATE threadline.api_tokens SET last_used_at = $3
WHERE tenant_id = $1 AND id = $2 AND (last_used_at IS NULL OR last_used_at < $3)

-- name: take_permits
SELECT threadline.take_permits($1, $2, $3, $4, $5, $6, $7)

-- name: drop_permits
DELETE FROM threadline.permits WHERE tenant_id = $1 AND window_at < $2

-- name: add_tenant
INSERT INTO threadline.tenants (tenant_id, created_at) VALUES ($1, $2) ON CONFLICT DO NOTHING

-- name: add_act
INSERT INTO threadline.audit (tenant_id, id, actor_id, act, target, details, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)

-- name: list_acts
SELECT id, actor_id, act, target, details, created_at FROM threadline.audit
WHERE tenant_id = $1 AND ($2::text IS NULL OR id < $2)
UNION ALL
SELECT id, actor_id, 'tenant.purged', tenant_id, details, created_at FROM threadline.tenant_purges
WHERE tenant_id = $1 AND ($2::text IS NULL OR id < $2)
ORDER BY id DESC LIMIT $3
