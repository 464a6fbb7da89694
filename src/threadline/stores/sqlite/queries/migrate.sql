-- name: count_schema
SELECT count(*) FROM sqlite_schema;

-- name: create_journal
CREATE TABLE IF NOT EXISTS schema_migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    oldest_compatible INTEGER NOT NULL,
    applied_us INTEGER NOT NULL
) STRICT;

-- name: read_journal
SELECT number, name, checksum, oldest_compatible FROM schema_migrations ORDER BY number;

-- name: write_journal
INSERT INTO schema_migrations (number, name, checksum, oldest_compatible, applied_us) VALUES (?, ?, ?, ?, ?);
