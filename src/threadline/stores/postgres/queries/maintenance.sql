-- name: list_tenants
SELECT tenant_id FROM threadline.tenants ORDER BY tenant_id

-- name: purge_thread
SELECT threadline.purge_threads($1, ARRAY[$2])

-- name: purge_owner
SELECT tablename, removed FROM threadline.purge_owner($1, $2)

-- name: add_tenant_purge
INSERT INTO threadline.tenant_purges (tenant_id, id, actor_id, details, created_at) VALUES ($1, $2, $3, $4, $5)

-- name: purge_tenant
SELECT tablename, removed FROM threadline.purge_tenant($1)

-- name: count_rows
SELECT tablename, counted FROM threadline.count_rows($1)

-- Copying: columns in the order of core.portable. Reads take tenant, position and limit; writes the tenant and the row.

-- name: list_threads
SELECT id FROM threadline.threads WHERE tenant_id = $1;

-- name: read_tenants
SELECT name, created_at FROM threadline.tenants WHERE tenant_id = $1 OFFSET $2 LIMIT $3;

-- name: read_users
SELECT id, display_name, role, disabled_at, created_at FROM threadline.users
WHERE tenant_id = $1 ORDER BY id OFFSET $2 LIMIT $3;

-- name: read_agents
SELECT id, name, provider, model, settings, system_prompt, enabled
FROM threadline.agents WHERE tenant_id = $1 ORDER BY id OFFSET $2 LIMIT $3;

-- name: read_legal_holds
SELECT id, reason, created_by, created_at, owner_id, thread_id
FROM threadline.legal_holds WHERE tenant_id = $1 ORDER BY id OFFSET $2 LIMIT $3;

-- name: read_credentials
SELECT platform, key_id, sealed, updated_at
FROM threadline.credentials WHERE tenant_id = $1 ORDER BY platform OFFSET $2 LIMIT $3;

-- name: read_timelines
SELECT id, owner_id, thread_id, parent_id, parent_seq, ancestors, ancestor_seqs, created_at
FROM threadline.timelines WHERE tenant_id = $1 ORDER BY cardinality(ancestors), created_at, id OFFSET $2 LIMIT $3;

-- name: read_threads
SELECT id, owner_id, state_key, timeline_id, title, title_by_person, agent_id, model, system_prompt, working_dir,
    metadata, message_count, token_count, created_at, updated_at, archived_at, deleted_at
FROM threadline.threads WHERE tenant_id = $1 ORDER BY created_at, id OFFSET $2 LIMIT $3;

-- name: read_messages
SELECT timeline_id, seq, owner_id, id, role, turn_id, created_us, metadata, parts
FROM threadline.messages WHERE tenant_id = $1 AND (timeline_id, seq) > ($2, $3) ORDER BY timeline_id, seq LIMIT $4;

-- name: read_append_keys
SELECT thread_id, key, owner_id, timeline_id, first_seq, messages, fingerprint
FROM threadline.append_keys WHERE tenant_id = $1 ORDER BY thread_id, key OFFSET $2 LIMIT $3;

-- name: read_saved_points
SELECT owner_id, name, thread_id, timeline_id, seq, created_at
FROM threadline.saved_points WHERE tenant_id = $1 ORDER BY owner_id, name OFFSET $2 LIMIT $3;

-- name: read_summaries
SELECT timeline_id, seq, owner_id, text, created_at, source, model
FROM threadline.summaries WHERE tenant_id = $1 ORDER BY timeline_id, seq OFFSET $2 LIMIT $3;

-- name: read_hidden_parts
SELECT timeline_id, seq, part, owner_id, turn_id, hidden_at
FROM threadline.hidden_parts WHERE tenant_id = $1 ORDER BY timeline_id, seq, part OFFSET $2 LIMIT $3;

-- name: read_context_snapshots
SELECT owner_id, agent_id, context, created_at, updated_at
FROM threadline.context_snapshots WHERE tenant_id = $1 ORDER BY owner_id, agent_id OFFSET $2 LIMIT $3;

-- name: read_bindings
SELECT surface, place, owner_id, thread_id, label, metadata, created_at, updated_at
FROM threadline.bindings WHERE tenant_id = $1 ORDER BY surface, place OFFSET $2 LIMIT $3;

-- name: read_links
SELECT platform, platform_user_id, owner_id, state, created_at, updated_at
FROM threadline.links WHERE tenant_id = $1 ORDER BY platform, platform_user_id OFFSET $2 LIMIT $3;

-- name: read_link_codes
SELECT code_hash, owner_id, platform, expires_at
FROM threadline.link_codes WHERE tenant_id = $1 ORDER BY code_hash OFFSET $2 LIMIT $3;

-- name: read_api_tokens
SELECT id, owner_id, token_hash, name, role, created_at, expires_at, last_used_at, revoked_at, acts_for_users
FROM threadline.api_tokens WHERE tenant_id = $1 ORDER BY id OFFSET $2 LIMIT $3;

-- name: read_sign_ins
SELECT id, owner_id, secret_hash, role, method, created_at, expires_at, opened_at, last_seen_at, revoked_at, device
FROM threadline.sign_ins WHERE tenant_id = $1 ORDER BY id OFFSET $2 LIMIT $3;

-- name: read_audit
SELECT id, actor_id, act, target, details, created_at
FROM threadline.audit WHERE tenant_id = $1 ORDER BY id OFFSET $2 LIMIT $3;

-- name: read_turns
SELECT id, owner_id, thread_id, surface, agent_id, status, idempotency_key, request_hash, request_seq, reply_seq,
    error, usage, seen, lease_owner, lease_until, fence, stop_asked, created_at, finished_at, provider, model, steers
FROM threadline.turns WHERE tenant_id = $1 ORDER BY place OFFSET $2 LIMIT $3;

-- name: read_usage_days
SELECT owner_id, day, agent_id, provider, model, turns, input_tokens, output_tokens, cached_tokens, reasoning_tokens,
    cost_nanos, kind
FROM threadline.usage_days WHERE tenant_id = $1
ORDER BY owner_id, day, agent_id, provider, model, kind OFFSET $2 LIMIT $3;

-- name: read_stored_values
SELECT scope, scope_id, namespace, key, n, owner_id, version, size, key_id, updated_at, expires_at, piece
FROM threadline.stored_values
WHERE tenant_id = $1 AND (scope, scope_id, namespace, key, n) > ($2, $3, $4, $5, $6)
ORDER BY scope, scope_id, namespace, key, n LIMIT $7;

-- name: read_turn_chunks
SELECT turn_id, n, owner_id, chunk
FROM threadline.turn_chunks WHERE tenant_id = $1 AND (turn_id, n) > ($2, $3) ORDER BY turn_id, n LIMIT $4;

-- name: read_tool_runs
SELECT turn_id, call_id, owner_id, name, input, repeatable, output, finished_at
FROM threadline.tool_runs WHERE tenant_id = $1 ORDER BY place OFFSET $2 LIMIT $3;

-- name: read_inbox
SELECT platform, key, owner_id, status, decision, turn_id, fingerprint, correlation_id, reply_to, created_at, updated_at
FROM threadline.inbox WHERE tenant_id = $1 ORDER BY platform, key OFFSET $2 LIMIT $3;

-- name: read_outbox
SELECT id, owner_id, turn_id, platform, recipient, payload, status, attempts, next_attempt_at, claimed_by,
    claimed_until, last_error, created_at, sent_at, requeued_at, message_id
FROM threadline.outbox WHERE tenant_id = $1 ORDER BY created_at, id OFFSET $2 LIMIT $3;

-- name: write_tenants
INSERT INTO threadline.tenants (tenant_id, name, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;

-- name: write_users
INSERT INTO threadline.users (tenant_id, id, display_name, role, disabled_at, created_at)
VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING;

-- name: write_agents
INSERT INTO threadline.agents (tenant_id, id, name, provider, model, settings, system_prompt, enabled)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING;

-- name: write_legal_holds
INSERT INTO threadline.legal_holds (tenant_id, id, reason, created_by, created_at, owner_id, thread_id)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING;

-- name: write_credentials
INSERT INTO threadline.credentials (tenant_id, platform, key_id, sealed, updated_at)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING;

-- name: write_timelines
INSERT INTO threadline.timelines
    (tenant_id, id, owner_id, thread_id, parent_id, parent_seq, ancestors, ancestor_seqs, created_at, nearest,
    nearest_seqs)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, ($7::text[])[1:16], ($8::integer[])[1:16])
ON CONFLICT (tenant_id, id) DO UPDATE SET thread_id = excluded.thread_id WHERE timelines.thread_id IS NULL;

-- name: write_threads
INSERT INTO threadline.threads
    (tenant_id, id, owner_id, state_key, timeline_id, title, title_by_person, agent_id, model, system_prompt,
    working_dir, metadata, message_count, indexed_count, token_count, created_at, updated_at, archived_at, deleted_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13, $14, $15, $16, $17, $18) ON CONFLICT DO NOTHING;

-- name: label_threads
SELECT threadline.label_threads($1, $2)

-- name: add_search_backlog
INSERT INTO threadline.search_backlog (tenant_id, owner_id, timeline_id, first_seq, last_seq)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant_id, owner_id, timeline_id, first_seq) DO UPDATE SET last_seq = excluded.last_seq;

-- name: write_messages
INSERT INTO threadline.messages
    (tenant_id, timeline_id, seq, owner_id, id, role, turn_id, created_us, metadata, parts)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING;

-- name: write_append_keys
INSERT INTO threadline.append_keys
    (tenant_id, thread_id, key, owner_id, timeline_id, first_seq, messages, fingerprint, created_at)
SELECT t.tenant_id, t.id, $3, $4, $5, $6, $7, $8, t.created_at FROM threadline.threads t WHERE t.tenant_id = $1 AND t.id = $2
ON CONFLICT DO NOTHING;

-- name: write_saved_points
INSERT INTO threadline.saved_points (tenant_id, owner_id, name, thread_id, timeline_id, seq, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING;

-- name: write_summaries
INSERT INTO threadline.summaries (tenant_id, timeline_id, seq, owner_id, text, created_at, source, model)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING;

-- name: write_hidden_parts
INSERT INTO threadline.hidden_parts (tenant_id, timeline_id, seq, part, owner_id, turn_id, hidden_at)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING;

-- name: write_context_snapshots
INSERT INTO threadline.context_snapshots (tenant_id, owner_id, agent_id, context, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING;

-- name: write_bindings
INSERT INTO threadline.bindings
    (tenant_id, surface, place, owner_id, thread_id, label, metadata, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING;

-- name: write_links
INSERT INTO threadline.links (tenant_id, platform, platform_user_id, owner_id, state, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING;

-- name: write_link_codes
INSERT INTO threadline.link_codes (tenant_id, code_hash, owner_id, platform, expires_at)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING;

-- name: write_api_tokens
INSERT INTO threadline.api_tokens
    (tenant_id, id, owner_id, token_hash, name, role, created_at, expires_at, last_used_at, revoked_at,
    acts_for_users)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING;

-- name: write_sign_ins
INSERT INTO threadline.sign_ins
    (tenant_id, id, owner_id, secret_hash, role, method, created_at, expires_at, opened_at, last_seen_at, revoked_at,
    device)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING;

-- name: write_audit
INSERT INTO threadline.audit (tenant_id, id, actor_id, act, target, details, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING;

-- name: write_turns
INSERT INTO threadline.turns
    (tenant_id, id, owner_id, thread_id, surface, agent_id, status, idempotency_key, request_hash, request_seq,
    reply_seq, error, usage, seen, lease_owner, lease_until, fence, stop_asked, created_at, finished_at, provider,
    model, steers)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)
ON CONFLICT DO NOTHING;

-- name: write_usage_days
INSERT INTO threadline.usage_days
    (tenant_id, owner_id, day, agent_id, provider, model, turns, input_tokens, output_tokens, cached_tokens,
    reasoning_tokens, cost_nanos, kind)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT DO NOTHING;

-- name: write_stored_values
INSERT INTO threadline.stored_values
    (tenant_id, scope, scope_id, namespace, key, n, owner_id, version, size, key_id, updated_at, expires_at, piece)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT DO NOTHING;

-- name: write_turn_chunks
INSERT INTO threadline.turn_chunks (tenant_id, turn_id, n, owner_id, chunk)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING;

-- name: write_tool_runs
INSERT INTO threadline.tool_runs
    (tenant_id, turn_id, call_id, owner_id, name, input, repeatable, output, finished_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING;

-- name: write_inbox
INSERT INTO threadline.inbox
    (tenant_id, platform, key, owner_id, status, decision, turn_id, fingerprint, correlation_id, reply_to, created_at,
    updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING;

-- name: write_outbox
INSERT INTO threadline.outbox
    (tenant_id, id, owner_id, turn_id, platform, recipient, payload, status, attempts, next_attempt_at, claimed_by,
    claimed_until, last_error, created_at, sent_at, requeued_at, message_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) ON CONFLICT DO NOTHING;

-- name: list_unprotected
SELECT c.relname::text AS tablename, c.relrowsecurity AND c.relforcerowsecurity AS is_forced,
    c.relispartition OR EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid) AS has_policy
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'threadline' AND c.relkind IN ('r', 'p') AND c.relname NOT IN ('migrations', 'function_files')
    AND NOT (c.relrowsecurity AND c.relforcerowsecurity
        AND (c.relispartition OR EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid)))
ORDER BY c.relname

-- name: list_privileged_roles
SELECT r.rolname::text AS rolname FROM pg_roles r
WHERE r.rolname IN ('threadline_app', 'threadline_worker', 'threadline_search')
    AND (r.rolsuper OR r.rolbypassrls OR r.rolcanlogin OR r.rolcreaterole)
ORDER BY r.rolname

-- name: list_owned_by_roles
SELECT c.relname::text AS tablename, pg_get_userbyid(c.relowner)::text AS owner
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'threadline' AND c.relkind IN ('r', 'p')
    AND pg_get_userbyid(c.relowner) IN ('threadline_app', 'threadline_worker', 'threadline_search')
ORDER BY c.relname

-- name: list_other_grantees
SELECT DISTINCT c.relname::text AS tablename, coalesce(r.rolname::text, 'public') AS grantee
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL aclexplode(c.relacl) given LEFT JOIN pg_roles r ON r.oid = given.grantee
WHERE n.nspname = 'threadline' AND c.relkind IN ('r', 'p') AND c.relname NOT IN ('migrations', 'function_files') AND given.grantee <> c.relowner
    AND coalesce(r.rolname, 'public') NOT IN (
        'threadline_app', 'threadline_worker', 'threadline_search', 'threadline_dump'
    )
ORDER BY 1, 2

-- name: list_wrong_counts
SELECT t.id FROM threadline.threads t
WHERE t.tenant_id = $1 AND t.message_count <> threadline.last_seq_of($1, t.id, t.timeline_id) + 1
ORDER BY t.id LIMIT 10

-- name: list_dangling
SELECT 'timeline' AS kind, l.id AS name FROM threadline.timelines l
WHERE l.tenant_id = $1 AND l.thread_id IS NOT NULL
    AND NOT EXISTS (SELECT FROM threadline.threads t WHERE t.tenant_id = $1 AND t.id = l.thread_id)
UNION ALL
SELECT 'saved point', s.name FROM threadline.saved_points s
WHERE s.tenant_id = $1 AND NOT EXISTS (
    SELECT FROM threadline.threads t JOIN threadline.timelines l ON l.tenant_id = $1 AND l.id = s.timeline_id
    WHERE t.tenant_id = $1 AND t.id = s.thread_id
)
ORDER BY 1, 2 LIMIT 10
