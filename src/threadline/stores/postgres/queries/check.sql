-- name: list_unprotected
SELECT c.relname::text AS tablename, c.relrowsecurity AND c.relforcerowsecurity AS is_forced,
    c.relispartition OR EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid) AS has_policy
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'threadline' AND c.relkind IN ('r', 'p') AND c.relname NOT IN ('migrations', 'function_files')
    AND NOT (c.relrowsecurity AND c.relforcerowsecurity
        AND (c.relispartition OR EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid)))
ORDER BY c.relname

-- name: list_mighty_roles
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

-- name: list_strangers
SELECT DISTINCT c.relname::text AS tablename, coalesce(r.rolname::text, 'public') AS grantee
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL aclexplode(c.relacl) given LEFT JOIN pg_roles r ON r.oid = given.grantee
WHERE n.nspname = 'threadline' AND c.relkind IN ('r', 'p') AND c.relname NOT IN ('migrations', 'function_files') AND given.grantee <> c.relowner
    AND coalesce(r.rolname, 'public') NOT IN ('threadline_app', 'threadline_worker', 'threadline_search')
ORDER BY 1, 2

-- name: list_wrong_counts
SELECT t.id FROM threadline.threads t
WHERE t.tenant_id = $1 AND t.message_count <> threadline.top_of($1, t.id, t.timeline_id) + 1
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
