-- name: add_sign_in
INSERT INTO threadline.sign_ins
    (tenant_id, id, owner_id, secret_hash, role, method, created_at, expires_at, opened_at, last_seen_at, device)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING
RETURNING id, owner_id, role, method, created_at, expires_at, opened_at, last_seen_at, revoked_at, device

-- name: find_sign_in
SELECT id, owner_id, role, method, created_at, expires_at, opened_at, last_seen_at, revoked_at, device
FROM threadline.find_sign_in($1, $2, $3, $4)

-- name: open_sign_in
UPDATE threadline.sign_ins s SET secret_hash = $3, expires_at = $4, device = $5, opened_at = $6, last_seen_at = $6
WHERE s.tenant_id = $1 AND s.secret_hash = $2 AND s.opened_at IS NULL AND s.revoked_at IS NULL AND s.expires_at > $6
    AND NOT EXISTS (
        SELECT FROM threadline.users u WHERE u.tenant_id = $1 AND u.id = s.owner_id AND u.disabled_at IS NOT NULL
    )
RETURNING id, owner_id, role, method, created_at, expires_at, opened_at, last_seen_at, revoked_at, device

-- name: list_sign_ins
SELECT id, owner_id, role, method, created_at, expires_at, opened_at, last_seen_at, revoked_at, device
FROM threadline.sign_ins WHERE tenant_id = $1 AND owner_id = $2 ORDER BY id DESC

-- name: revoke_sign_in
UPDATE threadline.sign_ins SET revoked_at = $4
WHERE tenant_id = $1 AND owner_id = $2 AND id = $3 AND revoked_at IS NULL

-- name: revoke_sign_ins
UPDATE threadline.sign_ins SET revoked_at = $4
WHERE tenant_id = $1 AND owner_id = $2 AND id <> coalesce($3::text, '') AND revoked_at IS NULL

-- name: note_sign_in_use
UPDATE threadline.sign_ins SET last_seen_at = $3
WHERE tenant_id = $1 AND id = $2 AND (last_seen_at IS NULL OR last_seen_at < $3)

-- name: drop_sign_ins
DELETE FROM threadline.sign_ins WHERE tenant_id = $1 AND (expires_at < $2 OR revoked_at < $2)
