-- name: find_value
SELECT version, expires_us FROM stored_values
WHERE tenant_id = ? AND scope = ? AND scope_id = ? AND namespace = ? AND key = ? AND n = 0;

-- name: remove_value
DELETE FROM stored_values WHERE tenant_id = ? AND scope = ? AND scope_id = ? AND namespace = ? AND key = ?;

-- name: add_piece
INSERT INTO stored_values
    (tenant_id, scope, scope_id, namespace, key, n, owner_id, version, size, key_id, updated_us, expires_us, piece)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: read_value
SELECT namespace, key, version, size, key_id, updated_us, expires_us, piece FROM stored_values
WHERE tenant_id = ? AND scope = ? AND scope_id = ? AND namespace = ? AND key = ?
    AND (expires_us IS NULL OR expires_us > ?)
ORDER BY n;

-- name: list_values
SELECT namespace, key, version, size, key_id, updated_us, expires_us FROM stored_values
WHERE tenant_id = ?1 AND scope = ?2 AND scope_id = ?3 AND namespace = ?4 AND key >= ?5 AND key < ?6 AND key > ?7
    AND n = 0 AND (expires_us IS NULL OR expires_us > ?8)
ORDER BY key LIMIT ?9;

-- name: list_values_backwards
SELECT namespace, key, version, size, key_id, updated_us, expires_us FROM stored_values
WHERE tenant_id = ?1 AND scope = ?2 AND scope_id = ?3 AND namespace = ?4 AND key >= ?5 AND key < ?6 AND key < ?7
    AND n = 0 AND (expires_us IS NULL OR expires_us > ?8)
ORDER BY key DESC LIMIT ?9;

-- name: list_namespaces
SELECT DISTINCT namespace FROM stored_values
WHERE tenant_id = ?1 AND scope = ?2 AND scope_id = ?3 AND n = 0 AND (expires_us IS NULL OR expires_us > ?4)
ORDER BY namespace;

-- name: drop_expired
DELETE FROM stored_values WHERE tenant_id = ? AND expires_us <= ?;

-- name: is_live_thread
SELECT owner_id FROM threads WHERE tenant_id = ? AND id = ? AND deleted_us IS NULL AND (owner_id = ? OR ?);
