-- name: find_login
SELECT quote_ident(session_user) AS login,
    pg_has_role(session_user, 'threadline_app', CASE
        WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER'
    END) AS is_app,
    EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') AS has_citus

-- name: list_tenants
SELECT tenant_id FROM threadline.tenants ORDER BY tenant_id

-- name: list_busy_tenants
SELECT * FROM threadline.busy_tenants() tenant_id

-- name: bytes_on_disk
SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'threadline' AND c.relkind IN ('r', 'm')

-- name: lock_for_writing
-- The locks that a turn takes. Soon, because a probe waits for the answer.
SET LOCAL lock_timeout = 2000;
LOCK TABLE threadline.threads, threadline.turns, ONLY threadline.messages IN ROW EXCLUSIVE MODE
