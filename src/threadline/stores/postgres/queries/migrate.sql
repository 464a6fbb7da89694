-- name: take_lock
SELECT pg_advisory_lock(hashtextextended('threadline migrations', 0))

-- name: find_prerequisites
SELECT
    (SELECT array_agg(rolname::text) FROM pg_roles WHERE rolname = ANY ($1::text[])) AS roles,
    (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS is_superuser,
    CASE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = 'threadline_migrator')
        THEN pg_has_role('threadline_migrator', 'MEMBER') ELSE false END AS is_migrator,
    EXISTS (SELECT FROM pg_namespace WHERE nspname = 'threadline') AS has_schema,
    quote_ident(current_user) AS login

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
