-- name: find_owner_of_thread
SELECT owner_id FROM threadline.threads WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL

-- name: rebind
UPDATE threadline.bindings SET
    thread_id = $5, owner_id = $4, label = coalesce($6, label), metadata = coalesce($7, metadata), updated_at = $8
WHERE tenant_id = $1 AND surface = $2 AND place = $3 AND owner_id = $4
RETURNING surface, place, owner_id, thread_id, label, metadata, created_at, updated_at

-- name: bind
INSERT INTO threadline.bindings
    (tenant_id, surface, place, owner_id, thread_id, label, metadata, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8) ON CONFLICT DO NOTHING
RETURNING surface, place, owner_id, thread_id, label, metadata, created_at, updated_at

-- name: find_binding
SELECT surface, place, owner_id, thread_id, label, metadata, created_at, updated_at FROM threadline.bindings
WHERE tenant_id = $1 AND surface = $2 AND place = $3

-- name: list_bindings
SELECT surface, place, owner_id, thread_id, label, metadata, created_at, updated_at FROM threadline.bindings
WHERE tenant_id = $1 AND ($2::text IS NULL OR owner_id = $2)
    AND ($3::text IS NULL OR surface = $3) AND ($4::text IS NULL OR thread_id = $4)
ORDER BY surface, place

-- name: unbind
DELETE FROM threadline.bindings WHERE tenant_id = $1 AND surface = $2 AND place = $3

-- name: set_context
INSERT INTO threadline.context_snapshots (tenant_id, owner_id, agent_id, context, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $5)
ON CONFLICT (tenant_id, owner_id, agent_id) DO UPDATE SET context = excluded.context, updated_at = excluded.updated_at
RETURNING agent_id, owner_id, context, created_at, updated_at

-- name: find_context
SELECT agent_id, owner_id, context, created_at, updated_at FROM threadline.find_context($1, $2, $3, $4)

-- name: clear_context
DELETE FROM threadline.context_snapshots WHERE tenant_id = $1 AND owner_id = $2 AND agent_id = $3
