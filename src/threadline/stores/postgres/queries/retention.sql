-- name: add_hold
INSERT INTO threadline.legal_holds (tenant_id, id, reason, created_by, created_at, owner_id, thread_id)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING

-- name: list_holds
SELECT id, reason, created_by, created_at, owner_id AS user_id, thread_id FROM threadline.legal_holds
WHERE tenant_id = $1 ORDER BY id

-- name: remove_hold
DELETE FROM threadline.legal_holds WHERE tenant_id = $1 AND id = $2

-- name: is_thread_held
SELECT FROM threadline.legal_holds h JOIN threadline.threads t ON t.tenant_id = h.tenant_id AND t.id = $2
WHERE h.tenant_id = $1
    AND (h.thread_id = t.id OR h.owner_id = t.owner_id OR (h.thread_id IS NULL AND h.owner_id IS NULL))
LIMIT 1

-- name: is_user_held
SELECT FROM threadline.legal_holds h
LEFT JOIN threadline.threads t ON t.tenant_id = h.tenant_id AND t.id = h.thread_id
WHERE h.tenant_id = $1
    AND (h.owner_id = $2 OR t.owner_id = $2 OR (h.thread_id IS NULL AND h.owner_id IS NULL))
LIMIT 1

-- name: is_tenant_held
SELECT FROM threadline.legal_holds WHERE tenant_id = $1 LIMIT 1

-- name: list_overdue
SELECT t.id, t.owner_id, CASE
    WHEN t.deleted_at < $4 THEN 'deleted'
    WHEN t.deleted_at IS NULL AND t.archived_at < $3 THEN 'archived'
    ELSE 'age'
END AS rule
FROM threadline.threads t
WHERE t.tenant_id = $1
    AND (t.deleted_at < $4 OR (t.deleted_at IS NULL AND t.archived_at < $3) OR t.updated_at < $2)
    AND NOT EXISTS (
        SELECT FROM threadline.legal_holds h
        WHERE h.tenant_id = $1
            AND (h.thread_id = t.id OR h.owner_id = t.owner_id OR (h.thread_id IS NULL AND h.owner_id IS NULL))
    )
    AND NOT EXISTS (
        SELECT FROM threadline.turns u
        WHERE u.tenant_id = $1 AND u.thread_id = t.id AND u.status IN ('accepted', 'running')
    )
ORDER BY t.updated_at, t.id LIMIT $5

-- name: drop_acts
DELETE FROM threadline.audit WHERE tenant_id = $1 AND created_at < $2 AND NOT EXISTS (
    SELECT FROM threadline.legal_holds h WHERE h.tenant_id = $1 AND h.thread_id IS NULL AND h.owner_id IS NULL
)
