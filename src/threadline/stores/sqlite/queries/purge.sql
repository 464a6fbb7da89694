-- name: count_rows
SELECT 'tenants', count(*) FROM tenants WHERE id = ?1
UNION ALL SELECT 'agents', count(*) FROM agents WHERE tenant_id = ?1
UNION ALL SELECT 'credentials', count(*) FROM credentials WHERE tenant_id = ?1 AND ?3
UNION ALL SELECT 'users', count(*) FROM users WHERE tenant_id = ?1 AND (id = ?2 OR ?3)
UNION ALL SELECT 'threads', count(*) FROM threads WHERE tenant_id = ?1 AND (owner_id = ?2 OR ?3)
UNION ALL SELECT 'timelines', count(*) FROM timelines WHERE tenant_id = ?1 AND (owner_id = ?2 OR ?3)
UNION ALL SELECT 'messages', count(*)
    FROM timelines l JOIN messages m ON m.timeline_no = l.no WHERE l.tenant_id = ?1 AND (l.owner_id = ?2 OR ?3)
UNION ALL SELECT 'append_keys', count(*)
    FROM threads t JOIN append_keys k ON k.thread_no = t.no WHERE t.tenant_id = ?1 AND (t.owner_id = ?2 OR ?3)
UNION ALL SELECT 'saved_points', count(*) FROM saved_points WHERE tenant_id = ?1 AND (owner_id = ?2 OR ?3)
UNION ALL SELECT 'summaries', count(*)
    FROM timelines l JOIN summaries x ON x.timeline_no = l.no WHERE l.tenant_id = ?1 AND (l.owner_id = ?2 OR ?3)
UNION ALL SELECT 'hidden_parts', count(*)
    FROM timelines l JOIN hidden_parts h ON h.timeline_no = l.no WHERE l.tenant_id = ?1 AND (l.owner_id = ?2 OR ?3)
UNION ALL SELECT 'context_snapshots', count(*) FROM context_snapshots WHERE tenant_id = ?1 AND (owner_id = ?2 OR ?3)
UNION ALL SELECT 'bindings', count(*) FROM bindings WHERE tenant_id = ?1 AND (owner_id = ?2 OR ?3)
UNION ALL SELECT 'links', count(*) FROM links WHERE tenant_id = ?1 AND (owner_id = ?2 OR ?3)
UNION ALL SELECT 'link_codes', count(*) FROM link_codes WHERE tenant_id = ?1 AND (owner_id = ?2 OR ?3)
UNION ALL SELECT 'inbox', count(*) FROM inbox WHERE tenant_id = ?1 AND (owner_id = ?2 OR ?3)
UNION ALL SELECT 'outbox', count(*) FROM outbox WHERE tenant_id = ?1 AND (owner_id = ?2 OR ?3)
UNION ALL SELECT 'api_tokens', count(*) FROM api_tokens WHERE tenant_id = ?1 AND (owner_id = ?2 OR ?3)
UNION ALL SELECT 'sign_ins', count(*) FROM sign_ins WHERE tenant_id = ?1 AND (owner_id = ?2 OR ?3)
UNION ALL SELECT 'audit', count(*) FROM audit WHERE tenant_id = ?1 AND ?3
UNION ALL SELECT 'legal_holds', count(*) FROM legal_holds WHERE tenant_id = ?1 AND ?3
UNION ALL SELECT 'usage_days', count(*) FROM usage_days WHERE tenant_id = ?1 AND (owner_id = ?2 OR ?3)
UNION ALL SELECT 'stored_values', count(*)
    FROM stored_values WHERE tenant_id = ?1 AND (owner_id = ?2 OR scope = 'tenant' OR ?3)
UNION ALL SELECT 'turns', count(*) FROM turns WHERE tenant_id = ?1 AND (owner_id = ?2 OR ?3)
UNION ALL SELECT 'turn_chunks', count(*)
    FROM turns t JOIN turn_chunks c ON c.turn_no = t.no WHERE t.tenant_id = ?1 AND (t.owner_id = ?2 OR ?3)
UNION ALL SELECT 'tool_runs', count(*)
    FROM turns t JOIN tool_runs r ON r.turn_no = t.no WHERE t.tenant_id = ?1 AND (t.owner_id = ?2 OR ?3);

-- name: find_own_thread
SELECT no FROM threads WHERE tenant_id = ? AND id = ? AND (owner_id = ? OR ?);

-- name: list_threads
SELECT no FROM threads WHERE tenant_id = ? AND owner_id = ?;

-- name: list_users
SELECT id FROM users WHERE tenant_id = ?;

-- name: remove_chunks
DELETE FROM turn_chunks WHERE turn_no IN (SELECT no FROM turns WHERE thread_no = ?);

-- name: remove_tool_runs
DELETE FROM tool_runs WHERE turn_no IN (SELECT no FROM turns WHERE thread_no = ?);

-- name: remove_turns
DELETE FROM turns WHERE thread_no = ?;

-- name: remove_bindings
DELETE FROM bindings WHERE thread_no = ?;

-- name: remove_append_keys
DELETE FROM append_keys WHERE thread_no = ?;

-- name: blank_thread_values
UPDATE stored_values SET piece = zeroblob(length(piece))
WHERE (tenant_id, scope, scope_id) IN (SELECT tenant_id, 'thread', id FROM threads WHERE no = ?);

-- name: remove_thread_values
DELETE FROM stored_values
WHERE (tenant_id, scope, scope_id) IN (SELECT tenant_id, 'thread', id FROM threads WHERE no = ?);

-- name: list_timelines
WITH RECURSIVE own (no, earlier_no) AS (
    SELECT l.no, l.earlier_no FROM threads t JOIN timelines l ON l.no = t.newest_timeline_no WHERE t.no = ?
    UNION ALL
    SELECT l.no, l.earlier_no FROM own JOIN timelines l ON l.no = own.earlier_no
)
SELECT no FROM own;

-- name: remove_saved_points
DELETE FROM saved_points WHERE timeline_no = ?;

-- name: abandon_timeline
UPDATE timelines SET thread_no = NULL, earlier_no = NULL, keeps_base = base_no IS NOT NULL WHERE no = ?;

-- name: remove_thread
DELETE FROM threads WHERE no = ?;

-- name: find_abandoned
SELECT base_no FROM timelines WHERE no = ? AND thread_no IS NULL;

-- name: list_children
SELECT no, base_seq FROM timelines WHERE base_no = ? AND keeps_base ORDER BY base_seq DESC;

-- name: list_messages
SELECT m.no, l.tenant_id, l.owner_id, m.parts
FROM timelines l JOIN messages m ON m.timeline_no = l.no WHERE l.no = ? AND m.seq > ?;

-- name: blank_messages
UPDATE messages SET parts = zeroblob(length(parts)), metadata = zeroblob(length(metadata))
WHERE timeline_no = ? AND seq > ?;

-- name: remove_messages
DELETE FROM messages WHERE timeline_no = ? AND seq > ?;

-- name: remove_summaries
DELETE FROM summaries WHERE timeline_no = ? AND seq > ?;

-- name: remove_hidden_parts
DELETE FROM hidden_parts WHERE timeline_no = ? AND seq > ?;

-- name: remove_timeline
DELETE FROM timelines WHERE no = ?;

-- name: remove_contexts
DELETE FROM context_snapshots WHERE tenant_id = ? AND owner_id = ?;

-- name: remove_links
DELETE FROM links WHERE tenant_id = ? AND owner_id = ?;

-- name: remove_link_codes
DELETE FROM link_codes WHERE tenant_id = ? AND owner_id = ?;

-- name: remove_inbox
DELETE FROM inbox WHERE tenant_id = ? AND owner_id = ?;

-- name: remove_outbox
DELETE FROM outbox WHERE tenant_id = ? AND owner_id = ?;

-- name: remove_tokens
DELETE FROM api_tokens WHERE tenant_id = ? AND owner_id = ?;

-- name: remove_sign_ins
DELETE FROM sign_ins WHERE tenant_id = ? AND owner_id = ?;

-- name: blank_values
UPDATE stored_values SET piece = zeroblob(length(piece)) WHERE tenant_id = ? AND owner_id = ?;

-- name: remove_values
DELETE FROM stored_values WHERE tenant_id = ? AND owner_id = ?;

-- name: remove_user
DELETE FROM users WHERE tenant_id = ? AND id = ?;

-- name: remove_ownerless_inbox
DELETE FROM inbox WHERE tenant_id = ?;

-- name: remove_credentials
DELETE FROM credentials WHERE tenant_id = ?;

-- name: remove_usage
DELETE FROM usage_days WHERE tenant_id = ? AND owner_id = ?;

-- name: blank_tenant_values
UPDATE stored_values SET piece = zeroblob(length(piece)) WHERE tenant_id = ?;

-- name: remove_tenant_values
DELETE FROM stored_values WHERE tenant_id = ?;

-- name: remove_agents
DELETE FROM agents WHERE tenant_id = ?;

-- name: remove_acts
DELETE FROM audit WHERE tenant_id = ?;

-- name: remove_permits
DELETE FROM permits WHERE tenant_id = ?;

-- name: remove_tenant
DELETE FROM tenants WHERE id = ?;

-- name: add_tenant_purge
INSERT INTO tenant_purges (tenant_id, id, actor_id, details, created_us) VALUES (?, ?, ?, ?, ?);
