-- name: put_agent
INSERT INTO threadline.agents (tenant_id, id, name, provider, model, settings, system_prompt, enabled)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (tenant_id, id) DO UPDATE SET name = excluded.name, provider = excluded.provider, model = excluded.model,
    settings = excluded.settings, system_prompt = excluded.system_prompt, enabled = excluded.enabled
RETURNING id, name, provider, model, settings, system_prompt, enabled

-- name: find_agent
SELECT id, name, provider, model, settings, system_prompt, enabled FROM threadline.find_agent($1, $2, $3, $4)

-- name: list_agents
SELECT id, name, provider, model, settings, system_prompt, enabled FROM threadline.agents
WHERE tenant_id = $1 ORDER BY id

-- name: delete_agent
DELETE FROM threadline.agents WHERE tenant_id = $1 AND id = $2

-- name: unpin_agent
DELETE FROM threadline.context_snapshots WHERE tenant_id = $1 AND agent_id = $2

-- name: put_user
UPDATE threadline.users SET display_name = $3, role = $4 WHERE tenant_id = $1 AND id = $2
RETURNING id, display_name, role, disabled_at

-- name: find_user
SELECT id, display_name, role, disabled_at FROM threadline.users WHERE tenant_id = $1 AND id = $2

-- name: find_any_user
SELECT id, display_name, role, disabled_at FROM threadline.find_user($1, $2, $3, $4)

-- name: list_users
SELECT id, display_name, role, disabled_at FROM threadline.users
WHERE tenant_id = $1 AND id > coalesce($2, '') ORDER BY id LIMIT $3

-- name: disable_user
UPDATE threadline.users SET disabled_at = coalesce(disabled_at, $3) WHERE tenant_id = $1 AND id = $2
RETURNING id, display_name, role, disabled_at

-- name: enable_user
UPDATE threadline.users SET disabled_at = NULL WHERE tenant_id = $1 AND id = $2
RETURNING id, display_name, role, disabled_at

-- name: revoke_tokens
UPDATE threadline.api_tokens SET revoked_at = $3 WHERE tenant_id = $1 AND owner_id = $2 AND revoked_at IS NULL

-- name: revoke_sign_ins
UPDATE threadline.sign_ins SET revoked_at = $3 WHERE tenant_id = $1 AND owner_id = $2 AND revoked_at IS NULL

-- name: revoke_links
UPDATE threadline.links SET state = 'revoked', updated_at = $3
WHERE tenant_id = $1 AND owner_id = $2 AND state <> 'revoked'

-- name: remove_codes
DELETE FROM threadline.link_codes WHERE tenant_id = $1 AND owner_id = $2

-- name: stop_turns
SELECT thread_id FROM threadline.stop_user_turns($1, $2, $3)

-- name: limit_tokens
UPDATE threadline.api_tokens SET role = $3
WHERE tenant_id = $1 AND owner_id = $2
    AND (($3 = 'viewer' AND role <> 'viewer') OR ($3 = 'member' AND role = 'admin'))

-- name: limit_sign_ins
UPDATE threadline.sign_ins SET role = $3
WHERE tenant_id = $1 AND owner_id = $2
    AND (($3 = 'viewer' AND role <> 'viewer') OR ($3 = 'member' AND role = 'admin'))

-- name: change_link
UPDATE threadline.links SET owner_id = $4, state = $5, updated_at = $6
WHERE tenant_id = $1 AND platform = $2 AND platform_user_id = $3
RETURNING platform, platform_user_id, owner_id, state, created_at, updated_at

-- name: add_link
INSERT INTO threadline.links (tenant_id, platform, platform_user_id, owner_id, state, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $6) ON CONFLICT DO NOTHING
RETURNING platform, platform_user_id, owner_id, state, created_at, updated_at

-- name: find_link
SELECT platform, platform_user_id, owner_id, state, created_at, updated_at FROM threadline.links
WHERE tenant_id = $1 AND platform = $2 AND platform_user_id = $3

-- name: find_sender
SELECT owner_id, state, role FROM threadline.find_sender($1, $2, $3, $4, $5)

-- name: list_links
SELECT platform, platform_user_id, owner_id, state, created_at, updated_at FROM threadline.links
WHERE tenant_id = $1 AND ($2::text IS NULL OR owner_id = $2) ORDER BY platform, platform_user_id

-- name: delete_link
DELETE FROM threadline.links WHERE tenant_id = $1 AND platform = $2 AND platform_user_id = $3

-- name: add_code
INSERT INTO threadline.link_codes (tenant_id, code_hash, owner_id, platform, expires_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING

-- name: use_code
DELETE FROM threadline.link_codes
WHERE tenant_id = $1 AND code_hash = $2 AND (platform IS NULL OR platform = $3) AND expires_at > $4
RETURNING owner_id

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

-- name: list_contexts
SELECT agent_id, owner_id, context, created_at, updated_at FROM threadline.context_snapshots
WHERE tenant_id = $1 AND owner_id = $2 ORDER BY agent_id COLLATE "C"

-- name: clear_context
DELETE FROM threadline.context_snapshots WHERE tenant_id = $1 AND owner_id = $2 AND agent_id = $3
