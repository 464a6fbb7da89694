-- name: add_hold
INSERT INTO legal_holds (tenant_id, id, reason, created_by, created_us, owner_id, thread_id)
VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: list_holds
SELECT id, reason, created_by, created_us, owner_id AS user_id, thread_id FROM legal_holds WHERE tenant_id = ? ORDER BY id;

-- name: remove_hold
DELETE FROM legal_holds WHERE tenant_id = ? AND id = ?;

-- name: is_thread_held
SELECT EXISTS (
    SELECT 1 FROM legal_holds h JOIN threads t ON t.no = ?2
    WHERE h.tenant_id = ?1
        AND (h.thread_id = t.id OR h.owner_id = t.owner_id OR (h.thread_id IS NULL AND h.owner_id IS NULL))
);

-- name: is_user_held
SELECT EXISTS (
    SELECT 1 FROM legal_holds h LEFT JOIN threads t ON t.tenant_id = h.tenant_id AND t.id = h.thread_id
    WHERE h.tenant_id = ?1
        AND (h.owner_id = ?2 OR t.owner_id = ?2 OR (h.thread_id IS NULL AND h.owner_id IS NULL))
);

-- name: is_tenant_held
SELECT EXISTS (SELECT 1 FROM legal_holds WHERE tenant_id = ?);

-- name: list_overdue
SELECT t.id, t.owner_id, CASE
    WHEN t.deleted_us < ?4 THEN 'deleted'
    WHEN t.deleted_us IS NULL AND t.archived_us < ?3 THEN 'archived'
    ELSE 'age'
END AS rule
FROM threads t
WHERE t.tenant_id = ?1
    AND (t.deleted_us < ?4 OR (t.deleted_us IS NULL AND t.archived_us < ?3) OR t.updated_us < ?2)
    AND NOT EXISTS (
        SELECT 1 FROM legal_holds h
        WHERE h.tenant_id = ?1
            AND (h.thread_id = t.id OR h.owner_id = t.owner_id OR (h.thread_id IS NULL AND h.owner_id IS NULL))
    )
    AND NOT EXISTS (SELECT 1 FROM turns u WHERE u.thread_no = t.no AND u.status IN ('accepted', 'running'))
ORDER BY t.updated_us, t.id LIMIT ?5;

-- name: drop_acts
DELETE FROM audit WHERE tenant_id = ?1 AND created_us < ?2 AND NOT EXISTS (
    SELECT 1 FROM legal_holds h WHERE h.tenant_id = ?1 AND h.thread_id IS NULL AND h.owner_id IS NULL
);
