-- name: find_place
SELECT owner_id, label, metadata, created_us FROM bindings WHERE tenant_id = ? AND surface = ? AND place = ?;

-- name: bind
INSERT INTO bindings (tenant_id, surface, place, owner_id, thread_no, label, metadata, created_us, updated_us)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant_id, surface, place) DO UPDATE SET owner_id = excluded.owner_id, thread_no = excluded.thread_no,
    label = excluded.label, metadata = excluded.metadata, updated_us = excluded.updated_us;

-- name: find_binding
SELECT b.surface, b.place, b.owner_id, t.id, b.label, b.metadata, b.created_us, b.updated_us
FROM bindings b JOIN threads t ON t.no = b.thread_no
WHERE b.tenant_id = ? AND b.surface = ? AND b.place = ? AND (b.owner_id = ? OR ?);

-- name: list_bindings
SELECT b.surface, b.place, b.owner_id, t.id, b.label, b.metadata, b.created_us, b.updated_us
FROM bindings b JOIN threads t ON t.no = b.thread_no
WHERE b.tenant_id = ?1 AND (b.owner_id = ?2 OR ?3) AND (?4 IS NULL OR b.surface = ?4) AND (?5 IS NULL OR t.id = ?5)
ORDER BY b.surface, b.place;

-- name: unbind
DELETE FROM bindings WHERE tenant_id = ? AND surface = ? AND place = ? AND (owner_id = ? OR ?);

-- name: set_context
INSERT INTO context_snapshots (tenant_id, owner_id, agent_id, context, created_us, updated_us)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant_id, owner_id, agent_id) DO UPDATE SET context = excluded.context, updated_us = excluded.updated_us;

-- name: find_context
SELECT agent_id, owner_id, context, created_us, updated_us FROM context_snapshots
WHERE tenant_id = ? AND owner_id = ? AND agent_id = ?;

-- name: clear_context
DELETE FROM context_snapshots WHERE tenant_id = ? AND owner_id = ? AND agent_id = ?;
