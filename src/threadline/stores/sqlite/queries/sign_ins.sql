-- name: add_sign_in
INSERT INTO sign_ins
    (tenant_id, id, owner_id, secret_hash, role, method, created_us, expires_us, opened_us, last_seen_us, device)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: find_sign_in
SELECT id, owner_id, role, method, created_us, expires_us, opened_us, last_seen_us, revoked_us, device
FROM sign_ins s WHERE s.tenant_id = ?1 AND s.secret_hash = ?2 AND NOT EXISTS (
    SELECT 1 FROM users u WHERE u.tenant_id = ?1 AND u.id = s.owner_id AND u.disabled_us IS NOT NULL
);

-- name: open_sign_in
UPDATE sign_ins SET secret_hash = ?3, expires_us = ?4, device = ?5, opened_us = ?6, last_seen_us = ?6
WHERE tenant_id = ?1 AND secret_hash = ?2 AND opened_us IS NULL AND revoked_us IS NULL AND expires_us > ?6
    AND NOT EXISTS (
        SELECT 1 FROM users u WHERE u.tenant_id = ?1 AND u.id = sign_ins.owner_id AND u.disabled_us IS NOT NULL
    );

-- name: list_sign_ins
SELECT id, owner_id, role, method, created_us, expires_us, opened_us, last_seen_us, revoked_us, device
FROM sign_ins WHERE tenant_id = ? AND owner_id = ? ORDER BY id DESC;

-- name: revoke_sign_in
UPDATE sign_ins SET revoked_us = ? WHERE tenant_id = ? AND owner_id = ? AND id = ? AND revoked_us IS NULL;

-- name: revoke_sign_ins
UPDATE sign_ins SET revoked_us = ?
WHERE tenant_id = ? AND owner_id = ? AND id <> coalesce(?, '') AND revoked_us IS NULL;

-- name: note_sign_in_use
UPDATE sign_ins SET last_seen_us = ?1 WHERE tenant_id = ?2 AND id = ?3 AND coalesce(last_seen_us, 0) < ?1;

-- name: drop_sign_ins
DELETE FROM sign_ins WHERE tenant_id = ?1 AND (expires_us < ?2 OR revoked_us < ?2);
