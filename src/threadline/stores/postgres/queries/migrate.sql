-- name: take_lock
SELECT pg_advisory_lock(hashtextextended('threadline migrations', 0))

-- name: find_prerequisites
SELECT
    (SELECT array_agg(r.rolname::text) FROM pg_roles r WHERE r.rolname = ANY ($1::text[])) AS roles,
    coalesce((SELECT pg_has_role(current_user, r.oid, 'MEMBER') FROM pg_roles r
        WHERE r.rolname = 'threadline_migrator'), (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user)
    ) AS is_migrator,
    coalesce((SELECT pg_has_role(m.oid, s.oid, 'MEMBER') FROM pg_roles m, pg_roles s
        WHERE m.rolname = 'threadline_migrator' AND s.rolname = 'threadline_search'), false) AS can_grant_search,
    EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = 'threadline') AS has_schema,
    quote_ident(current_user) AS login

-- name: has_role
SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)

-- name: count_partitions
SELECT count(*)::integer FROM pg_inherits WHERE inhparent = to_regclass('threadline.messages')

-- name: has_citus
SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')

-- name: has_journal
SELECT to_regclass('threadline.migrations') IS NOT NULL

-- name: read_journal
SELECT number, name, checksum, oldest_compatible FROM threadline.migrations ORDER BY number

-- name: create_journal
CREATE TABLE IF NOT EXISTS threadline.migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    oldest_compatible integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
GRANT USAGE ON SCHEMA threadline TO public;
GRANT SELECT ON threadline.migrations TO public;

-- name: write_journal
INSERT INTO threadline.migrations (number, name, checksum, oldest_compatible) VALUES ($1, $2, $3, $4)

-- name: become_migrator
SET LOCAL ROLE threadline_migrator

-- name: set_partitions
SELECT set_config('threadline.partitions', $1, true)

-- name: list_functions
SELECT p.oid::regprocedure::text AS signature FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'threadline' AND p.proargnames[1] = '_tenant' ORDER BY 1

-- name: has_function_files
SELECT to_regclass('threadline.function_files') IS NOT NULL

-- name: read_function_files
SELECT subject, checksum FROM threadline.function_files

-- name: drop_functions
-- All of them, because a changed signature would leave the old function beside the new one. The four that stay belong to
-- migration 1: policies and migrations call them. One statement, because functions with a parsed body depend on others.
DO $$
DECLARE
    listed constant text := (
        SELECT string_agg(p.oid::regprocedure::text, ', ') FROM pg_proc p
        WHERE p.pronamespace = 'threadline'::regnamespace
            AND p.proname NOT IN ('this_tenant', 'this_owner', 'protect', 'arrange')
    );
BEGIN
    IF listed IS NOT NULL THEN
        EXECUTE 'DROP FUNCTION ' || listed;
    END IF;
END $$

-- name: drop_types
DO $$
DECLARE
    listed constant text := (
        SELECT string_agg(c.oid::regclass::text, ', ') FROM pg_class c
        WHERE c.relnamespace = 'threadline'::regnamespace AND c.relkind = 'c'
    );
BEGIN
    IF listed IS NOT NULL THEN
        EXECUTE 'DROP TYPE ' || listed;
    END IF;
END $$

-- name: forget_function_files
DELETE FROM threadline.function_files

-- name: write_function_file
INSERT INTO threadline.function_files (subject, checksum) VALUES ($1, $2)

-- name: is_distributed
SELECT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = to_regclass('threadline.tenants'))
