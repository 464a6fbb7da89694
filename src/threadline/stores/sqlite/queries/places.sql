-- name: find_place
SELECT owner_id, label, metadata, created_us FROM bindings WHERE tenant_id = ? AND surface = ? AND place = ?;

-- name: bind
INSERT INTO bindings (tenant_id, surface, place, owner_id, thread_no, label, metadata, created_us, updated_us)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant_id, surface, place) DO UPDATE SET owner_id = excluded.owner_id, thread_no = excluded.thread_no,
    label = excluded.label, metadata = excluded.metadata, updated_us = excluded.updated_us;

-- name: find_binding
SELECT b.surface, b.place, b.owner_id, t.id AS thread_id, b.label, b.metadata, b.created_us, b.updated_us
FROM bindings b JOIN threads t ON t.no = b.thread_no
WHERE b.tenant_id = ? AND b.surface = ? AND b.place = ? AND (b.owner_id = ? OR ?);

-- name: list_bindings
SELECT b.surface, b.place, b.owner_id, t.id AS thread_id, b.label, b.metadata, b.created_us, b.updated_us
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

-- name: list_contexts
SELECT agent_id, owner_id, context, created_us, updated_us FROM context_snapshots
WHERE tenant_id = ? AND owner_id = ? ORDER BY agent_id;

-- name: clear_context
DELETE FROM context_snapshots WHERE tenant_id = ? AND owner_id = ? AND agent_id = ?;

-- name: put_agent
INSERT INTO agents (tenant_id, id, name, provider, model, settings, system_prompt, enabled)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant_id, id) DO UPDATE SET name = excluded.name, provider = excluded.provider, model = excluded.model,
    settings = excluded.settings, system_prompt = excluded.system_prompt, enabled = excluded.enabled;

-- name: find_agent
SELECT id, name, provider, model, settings, system_prompt, enabled FROM agents WHERE tenant_id = ? AND id = ?;

-- name: list_agents
SELECT id, name, provider, model, settings, system_prompt, enabled FROM agents WHERE tenant_id = ? ORDER BY id;

-- name: delete_agent
DELETE FROM agents WHERE tenant_id = ? AND id = ?;

-- name: unpin_agent
DELETE FROM context_snapshots WHERE tenant_id = ? AND agent_id = ?;

-- name: put_user
UPDATE users SET display_name = ?, role = ? WHERE tenant_id = ? AND id = ?;

-- name: find_user
SELECT id, display_name, role, disabled_us FROM users WHERE tenant_id = ? AND id = ?;

-- name: list_users
SELECT id, display_name, role, disabled_us FROM users
WHERE tenant_id = ? AND (id = ? OR ?) AND id > coalesce(?, '') ORDER BY id LIMIT coalesce(?, -1);

-- name: disable_user
UPDATE users SET disabled_us = coalesce(disabled_us, ?) WHERE tenant_id = ? AND id = ?;

-- name: enable_user
UPDATE users SET disabled_us = NULL WHERE tenant_id = ? AND id = ?;

-- name: revoke_tokens
UPDATE api_tokens SET revoked_us = ? WHERE tenant_id = ? AND owner_id = ? AND revoked_us IS NULL;

-- name: revoke_sign_ins
UPDATE sign_ins SET revoked_us = ? WHERE tenant_id = ? AND owner_id = ? AND revoked_us IS NULL;

-- name: revoke_links
UPDATE links SET state = 'revoked', updated_us = ? WHERE tenant_id = ? AND owner_id = ? AND state <> 'revoked';

-- name: remove_codes
DELETE FROM link_codes WHERE tenant_id = ? AND owner_id = ?;

-- name: list_active_turns
SELECT u.id, t.id FROM turns u JOIN threads t ON t.no = u.thread_no
WHERE u.tenant_id = ? AND u.owner_id = ? AND u.status IN ('accepted', 'running');

-- name: stop_turns
UPDATE turns SET stop_asked = 1,
    finished_us = CASE status WHEN 'accepted' THEN ? END,
    status = CASE status WHEN 'accepted' THEN 'stopped' ELSE status END
WHERE tenant_id = ? AND owner_id = ? AND status IN ('accepted', 'running');

-- name: limit_tokens
UPDATE api_tokens SET role = ?1
WHERE tenant_id = ?2 AND owner_id = ?3
    AND CASE ?1 WHEN 'viewer' THEN role <> 'viewer' WHEN 'member' THEN role = 'admin' ELSE 0 END;

-- name: limit_sign_ins
UPDATE sign_ins SET role = ?1
WHERE tenant_id = ?2 AND owner_id = ?3
    AND CASE ?1 WHEN 'viewer' THEN role <> 'viewer' WHEN 'member' THEN role = 'admin' ELSE 0 END;

-- name: find_link
SELECT platform, platform_user_id, owner_id, state, created_us, updated_us FROM links
WHERE tenant_id = ? AND platform = ? AND platform_user_id = ? AND (owner_id = ? OR ?);

-- name: find_sender
SELECT l.owner_id, CASE WHEN u.disabled_us IS NULL THEN l.state ELSE 'revoked' END, u.role
FROM links l JOIN users u ON u.tenant_id = l.tenant_id AND u.id = l.owner_id
WHERE l.tenant_id = ? AND l.platform = ? AND l.platform_user_id = ?;

-- name: put_link
INSERT INTO links (tenant_id, platform, platform_user_id, owner_id, state, created_us, updated_us)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant_id, platform, platform_user_id) DO UPDATE
SET owner_id = excluded.owner_id, state = excluded.state, updated_us = excluded.updated_us;

-- name: list_links
SELECT platform, platform_user_id, owner_id, state, created_us, updated_us FROM links
WHERE tenant_id = ? AND (owner_id = ? OR ?) ORDER BY platform, platform_user_id;

-- name: delete_link
DELETE FROM links WHERE tenant_id = ? AND platform = ? AND platform_user_id = ? AND (owner_id = ? OR ?);

-- name: find_code
SELECT owner_id, platform, expires_us FROM link_codes WHERE tenant_id = ? AND code_hash = ?;

-- name: add_code
INSERT INTO link_codes (tenant_id, code_hash, owner_id, platform, expires_us) VALUES (?, ?, ?, ?, ?);

-- name: use_code
DELETE FROM link_codes WHERE tenant_id = ? AND code_hash = ?;
