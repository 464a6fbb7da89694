-- name: primary_position
SELECT (CASE current_setting('synchronous_commit')
    -- Such a commit is answered before it is flushed, and only what is flushed reaches a replica.
    WHEN 'off' THEN pg_current_wal_insert_lsn()
    ELSE pg_current_wal_flush_lsn()
END)::text AS lsn, system_identifier AS cluster
FROM pg_control_system()

-- name: has_replayed
SELECT pg_is_in_recovery() AND system_identifier = $2 AS is_replica,
    coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false) AS has_replayed
FROM pg_control_system()
