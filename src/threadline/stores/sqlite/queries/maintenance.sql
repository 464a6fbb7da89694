-- name: find_wrong_counts
SELECT t.tenant_id, t.id FROM threads t JOIN timelines l ON l.no = t.timeline_no
WHERE t.message_count <> coalesce(
    (SELECT m.seq + 1 FROM messages m WHERE m.timeline_no = l.no ORDER BY m.seq DESC LIMIT 1),
    l.base_seq + 1,
    0
);

-- name: find_wrong_timelines
SELECT t.tenant_id, t.id FROM threads t LEFT JOIN timelines l ON l.no = t.timeline_no
WHERE t.timeline_id IS NOT l.id OR t.no IS NOT l.thread_no;

-- name: find_gaps
SELECT l.tenant_id, l.id
FROM timelines l JOIN (
    SELECT timeline_no, min(seq) AS first, max(seq) AS last, count(*) AS held FROM messages GROUP BY timeline_no
) m ON m.timeline_no = l.no
WHERE m.first <> coalesce(l.base_seq + 1, 0) OR m.held <> m.last - m.first + 1;

-- name: find_stray_timelines
SELECT l.tenant_id, l.id
FROM timelines l LEFT JOIN threads t ON t.no = l.thread_no LEFT JOIN timelines b ON b.no = l.base_no
WHERE l.base_no IS NOT b.no OR l.thread_no IS NOT t.no
    OR (l.no <> t.newest_timeline_no AND l.no NOT IN (SELECT earlier_no FROM timelines WHERE earlier_no IS NOT NULL));

-- Rows in the order of core.portable, after a number to go on from. Reads: tenant, number or offset, limit.
-- Writes: the tenant, then the row, with numbers in the place of the ids of threads, timelines and turns.

-- name: number_timelines
SELECT no, id FROM timelines WHERE tenant_id = ?;

-- name: number_threads
SELECT no, id FROM threads WHERE tenant_id = ?;

-- name: number_turns
SELECT no, id FROM turns WHERE tenant_id = ?;

-- name: read_tenants
SELECT 0, name, created_us FROM tenants WHERE id = ?1 LIMIT ?3 OFFSET ?2;

-- name: read_users
SELECT 0, id, display_name, role, disabled_us, created_us FROM users WHERE tenant_id = ?1 ORDER BY id LIMIT ?3 OFFSET ?2;

-- name: read_agents
SELECT 0, id, name, provider, model, settings, system_prompt, enabled
FROM agents WHERE tenant_id = ?1 ORDER BY id LIMIT ?3 OFFSET ?2;

-- name: read_legal_holds
SELECT 0, id, reason, created_by, created_us, owner_id, thread_id
FROM legal_holds WHERE tenant_id = ?1 ORDER BY id LIMIT ?3 OFFSET ?2;

-- name: read_credentials
SELECT 0, platform, key_id, sealed, updated_us
FROM credentials WHERE tenant_id = ?1 ORDER BY platform LIMIT ?3 OFFSET ?2;

-- name: read_timelines
SELECT l.no, l.id, l.owner_id, t.id, l.parent_id, l.parent_seq, l.ancestors, l.created_us
FROM timelines l LEFT JOIN threads t ON t.no = l.thread_no
WHERE l.tenant_id = ?1 AND l.no > ?2 ORDER BY l.no LIMIT ?3;

-- name: read_threads
SELECT t.no, t.id, t.owner_id, t.state_key, l.id, t.title, t.title_by_person, t.agent_id, t.model, t.system_prompt,
    t.working_dir, t.metadata, t.message_count, t.token_count, t.created_us, t.updated_us, t.archived_us, t.deleted_us
FROM threads t JOIN timelines l ON l.no = t.timeline_no
WHERE t.tenant_id = ?1 AND t.no > ?2 ORDER BY t.no LIMIT ?3;

-- name: read_messages
SELECT m.no, l.id, m.seq, l.owner_id, m.id, m.role, m.turn_id, m.created_us, m.metadata, m.parts
FROM messages m JOIN timelines l ON l.no = m.timeline_no
WHERE m.no > ?2 AND l.tenant_id = ?1 ORDER BY m.no LIMIT ?3;

-- name: read_append_keys
SELECT 0, t.id, k.key, t.owner_id, l.id, k.first_seq, k.message_count, k.digest
FROM append_keys k JOIN threads t ON t.no = k.thread_no JOIN timelines l ON l.no = k.timeline_no
WHERE t.tenant_id = ?1 ORDER BY k.thread_no, k.key LIMIT ?3 OFFSET ?2;

-- name: read_saved_points
SELECT 0, p.owner_id, p.name, t.id, l.id, p.seq, p.created_us
FROM saved_points p JOIN timelines l ON l.no = p.timeline_no JOIN threads t ON t.no = l.thread_no
WHERE p.tenant_id = ?1 ORDER BY p.owner_id, p.name LIMIT ?3 OFFSET ?2;

-- name: read_summaries
SELECT x.no, l.id, x.seq, l.owner_id, x.text, x.created_us, x.source, x.model
FROM summaries x JOIN timelines l ON l.no = x.timeline_no
WHERE l.tenant_id = ?1 AND x.no > ?2 ORDER BY x.no LIMIT ?3;

-- name: read_hidden_parts
SELECT 0, l.id, h.seq, h.part, l.owner_id, h.turn_id, h.hidden_us
FROM hidden_parts h JOIN timelines l ON l.no = h.timeline_no
WHERE l.tenant_id = ?1 ORDER BY h.timeline_no, h.seq, h.part LIMIT ?3 OFFSET ?2;

-- name: read_context_snapshots
SELECT 0, owner_id, agent_id, context, created_us, updated_us
FROM context_snapshots WHERE tenant_id = ?1 ORDER BY owner_id, agent_id LIMIT ?3 OFFSET ?2;

-- name: read_bindings
SELECT 0, b.surface, b.place, b.owner_id, t.id, b.label, b.metadata, b.created_us, b.updated_us
FROM bindings b JOIN threads t ON t.no = b.thread_no
WHERE b.tenant_id = ?1 ORDER BY b.surface, b.place LIMIT ?3 OFFSET ?2;

-- name: read_links
SELECT 0, platform, platform_user_id, owner_id, state, created_us, updated_us
FROM links WHERE tenant_id = ?1 ORDER BY platform, platform_user_id LIMIT ?3 OFFSET ?2;

-- name: read_link_codes
SELECT 0, code_hash, owner_id, platform, expires_us
FROM link_codes WHERE tenant_id = ?1 ORDER BY code_hash LIMIT ?3 OFFSET ?2;

-- name: read_api_tokens
SELECT 0, id, owner_id, token_hash, name, role, created_us, expires_us, last_used_us, revoked_us,
    acts_for_users
FROM api_tokens WHERE tenant_id = ?1 ORDER BY id LIMIT ?3 OFFSET ?2;

-- name: read_sign_ins
SELECT 0, id, owner_id, secret_hash, role, method, created_us, expires_us, opened_us, last_seen_us, revoked_us,
    device
FROM sign_ins WHERE tenant_id = ?1 ORDER BY id LIMIT ?3 OFFSET ?2;

-- name: read_audit
SELECT 0, id, actor_id, act, target, details, created_us
FROM audit WHERE tenant_id = ?1 ORDER BY id LIMIT ?3 OFFSET ?2;

-- name: read_turns
SELECT u.no, u.id, u.owner_id, t.id, u.surface, u.agent_id, u.status, u.idempotency_key, u.request_hash, u.request_seq,
    u.reply_seq, u.error, u.usage, u.seen, u.lease_owner, u.lease_until_us, u.fence, u.stop_asked, u.created_us,
    u.finished_us, u.provider, u.model, u.steers
FROM turns u JOIN threads t ON t.no = u.thread_no
WHERE u.tenant_id = ?1 AND u.no > ?2 ORDER BY u.no LIMIT ?3;

-- name: read_usage_days
SELECT 0, owner_id, day, agent_id, provider, model, turns, input_tokens, output_tokens, cached_tokens,
    reasoning_tokens, cost_nanos, kind
FROM usage_days WHERE tenant_id = ?1 ORDER BY owner_id, day, agent_id, provider, model, kind LIMIT ?3 OFFSET ?2;

-- name: read_stored_values
SELECT no, scope, scope_id, namespace, key, n, owner_id, version, size, key_id, updated_us, expires_us, piece
FROM stored_values WHERE tenant_id = ?1 AND no > ?2 ORDER BY no LIMIT ?3;

-- name: read_turn_chunks
SELECT 0, u.id, c.n, u.owner_id, c.chunk FROM turns u JOIN turn_chunks c ON c.turn_no = u.no
WHERE u.tenant_id = ?1 ORDER BY u.no, c.n LIMIT ?3 OFFSET ?2;

-- name: read_tool_runs
SELECT r.no, u.id, r.call_id, u.owner_id, r.name, r.input, r.repeatable, r.output, r.finished_us
FROM tool_runs r JOIN turns u ON u.no = r.turn_no
WHERE u.tenant_id = ?1 AND r.no > ?2 ORDER BY r.no LIMIT ?3;

-- name: read_inbox
SELECT 0, platform, key, owner_id, status, decision, turn_id, fingerprint, correlation_id, reply_to, created_us,
    updated_us
FROM inbox WHERE tenant_id = ?1 ORDER BY platform, key LIMIT ?3 OFFSET ?2;

-- name: read_outbox
SELECT no, id, owner_id, turn_id, platform, recipient, payload, status, attempts, next_attempt_us, claimed_by,
    claimed_until_us, last_error, created_us, sent_us, requeued_us, message_id
FROM outbox WHERE tenant_id = ?1 AND no > ?2 ORDER BY no LIMIT ?3;

-- name: write_tenants
INSERT INTO tenants (id, name, created_us) VALUES (?, ?, ?) ON CONFLICT DO NOTHING;

-- name: write_users
INSERT INTO users (tenant_id, id, display_name, role, disabled_us, created_us) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: write_agents
INSERT INTO agents (tenant_id, id, name, provider, model, settings, system_prompt, enabled)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: write_legal_holds
INSERT INTO legal_holds (tenant_id, id, reason, created_by, created_us, owner_id, thread_id)
VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: write_credentials
INSERT INTO credentials (tenant_id, platform, key_id, sealed, updated_us) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: write_timelines
INSERT INTO timelines
    (tenant_id, owner_id, id, created_us, parent_id, parent_seq, base_no, base_seq, keeps_base, ancestors)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: settle_timeline
UPDATE timelines SET thread_no = ?1, earlier_no = (SELECT newest_timeline_no FROM threads WHERE no = ?1)
WHERE no = ?2 AND thread_no IS NULL;

-- name: lengthen_chain
UPDATE threads SET newest_timeline_no = ?2 WHERE no = ?1;

-- name: write_threads
INSERT INTO threads
    (tenant_id, id, owner_id, state_key, timeline_no, title, title_by_person, agent_id, model, system_prompt,
    working_dir, metadata, message_count, token_count, created_us, updated_us, archived_us, deleted_us, timeline_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
    (SELECT id FROM timelines WHERE no = ?5)) ON CONFLICT DO NOTHING;

-- name: write_messages
INSERT INTO messages (timeline_no, seq, id, role, turn_id, created_us, metadata, parts)
VALUES (?2, ?3, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING;

-- name: write_append_keys
INSERT INTO append_keys (thread_no, key, timeline_no, first_seq, message_count, digest)
VALUES (?2, ?3, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING;

-- name: write_saved_points
INSERT INTO saved_points (tenant_id, owner_id, name, timeline_no, seq, created_us)
VALUES (?1, ?2, ?3, ?5, ?6, ?7) ON CONFLICT DO NOTHING;

-- name: write_summaries
INSERT INTO summaries (timeline_no, seq, text, created_us, source, model) VALUES (?2, ?3, ?5, ?6, ?7, ?8)
ON CONFLICT DO NOTHING;

-- name: write_hidden_parts
INSERT INTO hidden_parts (timeline_no, seq, part, turn_id, hidden_us) VALUES (?2, ?3, ?4, ?6, ?7)
ON CONFLICT DO NOTHING;

-- name: write_context_snapshots
INSERT INTO context_snapshots (tenant_id, owner_id, agent_id, context, created_us, updated_us)
VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: write_bindings
INSERT INTO bindings
    (tenant_id, surface, place, owner_id, thread_no, label, metadata, created_us, updated_us)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: write_links
INSERT INTO links (tenant_id, platform, platform_user_id, owner_id, state, created_us, updated_us)
VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: write_link_codes
INSERT INTO link_codes (tenant_id, code_hash, owner_id, platform, expires_us) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: write_api_tokens
INSERT INTO api_tokens
    (tenant_id, id, owner_id, token_hash, name, role, created_us, expires_us, last_used_us, revoked_us,
    acts_for_users)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: write_sign_ins
INSERT INTO sign_ins
    (tenant_id, id, owner_id, secret_hash, role, method, created_us, expires_us, opened_us, last_seen_us, revoked_us,
    device)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: write_audit
INSERT INTO audit (tenant_id, id, actor_id, act, target, details, created_us) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: write_turns
INSERT INTO turns
    (tenant_id, id, owner_id, thread_no, surface, agent_id, status, idempotency_key, request_hash, request_seq,
    reply_seq, error, usage, seen, lease_owner, lease_until_us, fence, stop_asked, created_us, finished_us, provider,
    model, steers)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: write_usage_days
INSERT INTO usage_days (tenant_id, owner_id, day, agent_id, provider, model, turns, input_tokens, output_tokens,
    cached_tokens, reasoning_tokens, cost_nanos, kind)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: write_stored_values
INSERT INTO stored_values
    (tenant_id, scope, scope_id, namespace, key, n, owner_id, version, size, key_id, updated_us, expires_us, piece)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: write_turn_chunks
INSERT INTO turn_chunks (turn_no, n, chunk) VALUES (?2, ?3, ?5) ON CONFLICT DO NOTHING;

-- name: write_tool_runs
INSERT INTO tool_runs (turn_no, call_id, name, input, repeatable, output, finished_us)
VALUES (?2, ?3, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING;

-- name: write_inbox
INSERT INTO inbox
    (tenant_id, platform, key, owner_id, status, decision, turn_id, fingerprint, correlation_id, reply_to, created_us,
    updated_us)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: write_outbox
INSERT INTO outbox
    (tenant_id, id, owner_id, turn_id, platform, recipient, payload, status, attempts, next_attempt_us, claimed_by,
    claimed_until_us, last_error, created_us, sent_us, requeued_us, message_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: list_all_tenants
SELECT id FROM tenants ORDER BY id;
