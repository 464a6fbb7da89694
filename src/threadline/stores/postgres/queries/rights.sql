-- name: list_wrong_owners
SELECT format('ALTER SCHEMA threadline OWNER TO threadline_migrator') AS statement FROM pg_namespace n
WHERE n.nspname = 'threadline' AND pg_get_userbyid(n.nspowner) <> 'threadline_migrator'
UNION ALL
SELECT format('ALTER %s %s OWNER TO threadline_migrator', CASE c.relkind WHEN 'c' THEN 'TYPE' ELSE 'TABLE' END,
    c.oid::regclass)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'threadline' AND c.relkind IN ('r', 'p', 'c')
    AND pg_get_userbyid(c.relowner) <> 'threadline_migrator'
UNION ALL
SELECT format('ALTER FUNCTION %s OWNER TO threadline_migrator', p.oid::regprocedure)
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'threadline' AND pg_get_userbyid(p.proowner) NOT IN ('threadline_migrator', 'threadline_search')

-- name: list_tables
SELECT c.relname::text AS tablename,
    c.relrowsecurity AND c.relforcerowsecurity OR c.relname IN ('migrations', 'function_files') AS is_forced
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'threadline' AND c.relkind IN ('r', 'p') ORDER BY 1

-- name: is_schema_open
SELECT EXISTS (
    SELECT FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) given
    WHERE n.nspname = 'threadline' AND given.grantee = 0 AND given.privilege_type = 'USAGE'
)

-- name: list_policies
SELECT c.relname::text, p.polname::text FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'threadline'

-- name: list_grants
SELECT c.relname::text, coalesce(r.rolname::text, 'public'), given.privilege_type
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL aclexplode(c.relacl) given LEFT JOIN pg_roles r ON r.oid = given.grantee
WHERE n.nspname = 'threadline'

-- name: lacks_dump_grants
SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'threadline_dump') AND EXISTS (
    SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'threadline' AND c.relkind IN ('r', 'p', 'S')
        AND NOT EXISTS (
            SELECT FROM aclexplode(c.relacl) given JOIN pg_roles r ON r.oid = given.grantee
            WHERE r.rolname = 'threadline_dump' AND given.privilege_type = 'SELECT'
        )
)
