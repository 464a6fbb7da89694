-- name: list_tenants
SELECT id FROM tenants ORDER BY id;

-- name: list_busy_tenants
SELECT tenant_id FROM turns WHERE status IN ('accepted', 'running')
UNION SELECT tenant_id FROM inbox WHERE status = 'accepted'
UNION SELECT tenant_id FROM outbox WHERE status IN ('waiting', 'claimed');

-- name: count_all_rows
SELECT 'tenants', count(*) FROM tenants
UNION ALL SELECT 'agents', count(*) FROM agents
UNION ALL SELECT 'credentials', count(*) FROM credentials
UNION ALL SELECT 'users', count(*) FROM users
UNION ALL SELECT 'threads', count(*) FROM threads
UNION ALL SELECT 'timelines', count(*) FROM timelines
UNION ALL SELECT 'messages', count(*) FROM messages
UNION ALL SELECT 'append_keys', count(*) FROM append_keys
UNION ALL SELECT 'saved_points', count(*) FROM saved_points
UNION ALL SELECT 'summaries', count(*) FROM summaries
UNION ALL SELECT 'hidden_parts', count(*) FROM hidden_parts
UNION ALL SELECT 'context_snapshots', count(*) FROM context_snapshots
UNION ALL SELECT 'bindings', count(*) FROM bindings
UNION ALL SELECT 'links', count(*) FROM links
UNION ALL SELECT 'link_codes', count(*) FROM link_codes
UNION ALL SELECT 'inbox', count(*) FROM inbox
UNION ALL SELECT 'outbox', count(*) FROM outbox
UNION ALL SELECT 'api_tokens', count(*) FROM api_tokens
UNION ALL SELECT 'sign_ins', count(*) FROM sign_ins
UNION ALL SELECT 'audit', count(*) FROM audit
UNION ALL SELECT 'usage_days', count(*) FROM usage_days
UNION ALL SELECT 'legal_holds', count(*) FROM legal_holds
UNION ALL SELECT 'stored_values', count(*) FROM stored_values
UNION ALL SELECT 'turns', count(*) FROM turns
UNION ALL SELECT 'turn_chunks', count(*) FROM turn_chunks
UNION ALL SELECT 'tool_runs', count(*) FROM tool_runs;
