-- name: find_user
SELECT 1 FROM users WHERE tenant_id = ? AND id = ?;

-- name: add_tenant
INSERT INTO tenants (id, created_us) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- name: add_user
INSERT INTO users (tenant_id, id, created_us) VALUES (?, ?, ?);
