-- name: find_thread
SELECT t.id, t.owner_id, t.state_key, t.timeline_id, t.title, t.title_by_person, t.agent_id, t.model, t.system_prompt,
    t.working_dir, t.metadata, t.message_count, t.token_count, t.created_us, t.updated_us, t.archived_us, t.deleted_us
FROM threads t WHERE t.tenant_id = ? AND t.id = ? AND (t.owner_id = ? OR ?) AND (t.deleted_us IS NULL OR ?);

-- name: find_thread_by_key
SELECT t.id, t.owner_id, t.state_key, t.timeline_id, t.title, t.title_by_person, t.agent_id, t.model, t.system_prompt,
    t.working_dir, t.metadata, t.message_count, t.token_count, t.created_us, t.updated_us, t.archived_us, t.deleted_us
FROM threads t WHERE t.tenant_id = ? AND t.owner_id = ? AND t.state_key = ? AND t.deleted_us IS NULL;

-- name: list_open_threads
-- The last parameters of a list are its filter: from when, which surface, which labels (a JSON array).
SELECT t.id, t.owner_id, t.state_key, t.timeline_id, t.title, t.title_by_person, t.agent_id, t.model, t.system_prompt,
    t.working_dir, t.metadata, t.message_count, t.token_count, t.created_us, t.updated_us, t.archived_us, t.deleted_us
FROM threads t INDEXED BY threads_open
WHERE t.tenant_id = ?1 AND t.owner_id = ?2 AND t.deleted_us IS NULL AND t.archived_us IS NULL
    AND (t.updated_us, t.id) < (?3, ?4)
    AND (?8 IS NULL OR t.updated_us >= ?8)
    AND (?9 IS NULL OR EXISTS (
        SELECT 1 FROM turns r INDEXED BY turns_by_owner
        WHERE r.tenant_id = t.tenant_id AND r.owner_id = t.owner_id AND r.surface = ?9 AND r.thread_no = t.no
    ))
    AND (?10 IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(?10) w WHERE NOT EXISTS (
            SELECT 1 FROM thread_labels f
            WHERE f.tenant_id = t.tenant_id AND f.label = w.value AND f.owner_id = t.owner_id AND f.thread_no = t.no
        )
    ))
ORDER BY t.updated_us DESC, t.id DESC LIMIT ?5 OFFSET ?6;

-- name: list_archived_threads
SELECT t.id, t.owner_id, t.state_key, t.timeline_id, t.title, t.title_by_person, t.agent_id, t.model, t.system_prompt,
    t.working_dir, t.metadata, t.message_count, t.token_count, t.created_us, t.updated_us, t.archived_us, t.deleted_us
FROM threads t INDEXED BY threads_archived
WHERE t.tenant_id = ?1 AND t.owner_id = ?2 AND t.deleted_us IS NULL AND t.archived_us IS NOT NULL
    AND (t.updated_us, t.id) < (?3, ?4)
    AND (?8 IS NULL OR t.updated_us >= ?8)
    AND (?9 IS NULL OR EXISTS (
        SELECT 1 FROM turns r INDEXED BY turns_by_owner
        WHERE r.tenant_id = t.tenant_id AND r.owner_id = t.owner_id AND r.surface = ?9 AND r.thread_no = t.no
    ))
    AND (?10 IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(?10) w WHERE NOT EXISTS (
            SELECT 1 FROM thread_labels f
            WHERE f.tenant_id = t.tenant_id AND f.label = w.value AND f.owner_id = t.owner_id AND f.thread_no = t.no
        )
    ))
ORDER BY t.updated_us DESC, t.id DESC LIMIT ?5 OFFSET ?6;

-- name: list_deleted_threads
SELECT t.id, t.owner_id, t.state_key, t.timeline_id, t.title, t.title_by_person, t.agent_id, t.model, t.system_prompt,
    t.working_dir, t.metadata, t.message_count, t.token_count, t.created_us, t.updated_us, t.archived_us, t.deleted_us
FROM threads t INDEXED BY threads_deleted
WHERE t.tenant_id = ?1 AND t.owner_id = ?2 AND t.deleted_us IS NOT NULL AND (?7 IS NULL OR (t.archived_us IS NOT NULL) = ?7)
    AND (t.updated_us, t.id) < (?3, ?4)
    AND (?8 IS NULL OR t.updated_us >= ?8)
    AND (?9 IS NULL OR EXISTS (
        SELECT 1 FROM turns r INDEXED BY turns_by_owner
        WHERE r.tenant_id = t.tenant_id AND r.owner_id = t.owner_id AND r.surface = ?9 AND r.thread_no = t.no
    ))
    AND (?10 IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(?10) w WHERE NOT EXISTS (
            SELECT 1 FROM thread_labels f
            WHERE f.tenant_id = t.tenant_id AND f.label = w.value AND f.owner_id = t.owner_id AND f.thread_no = t.no
        )
    ))
ORDER BY t.updated_us DESC, t.id DESC LIMIT ?5 OFFSET ?6;

-- name: list_labelled_threads
-- The same for a rare label: its threads are looked up and sorted.
SELECT t.id, t.owner_id, t.state_key, t.timeline_id, t.title, t.title_by_person, t.agent_id, t.model, t.system_prompt,
    t.working_dir, t.metadata, t.message_count, t.token_count, t.created_us, t.updated_us, t.archived_us, t.deleted_us
FROM thread_labels rare CROSS JOIN threads t ON t.no = rare.thread_no
WHERE rare.tenant_id = ?1 AND rare.label = ?11 AND rare.owner_id = ?2
    AND (t.deleted_us IS NOT NULL) = ?12 AND (?7 IS NULL OR (t.archived_us IS NOT NULL) = ?7)
    AND (t.updated_us, t.id) < (?3, ?4)
    AND (?8 IS NULL OR t.updated_us >= ?8)
    AND (?9 IS NULL OR EXISTS (
        SELECT 1 FROM turns r INDEXED BY turns_by_owner
        WHERE r.tenant_id = t.tenant_id AND r.owner_id = t.owner_id AND r.surface = ?9 AND r.thread_no = t.no
    ))
    AND (?10 IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(?10) w WHERE NOT EXISTS (
            SELECT 1 FROM thread_labels f
            WHERE f.tenant_id = t.tenant_id AND f.label = w.value AND f.owner_id = t.owner_id AND f.thread_no = t.no
        )
    ))
ORDER BY t.updated_us DESC, t.id DESC LIMIT ?5 OFFSET ?6;

-- name: count_labelled_threads
SELECT count(*) FROM (
    SELECT 1 FROM thread_labels WHERE tenant_id = ? AND label = ? AND owner_id = ? LIMIT ?
);

-- name: list_tenant_threads
SELECT t.id, t.owner_id, t.state_key, t.timeline_id, t.title, t.title_by_person, t.agent_id, t.model, t.system_prompt,
    t.working_dir, t.metadata, t.message_count, t.token_count, t.created_us, t.updated_us, t.archived_us, t.deleted_us
FROM threads t
WHERE t.tenant_id = ?1 AND t.id < ?2 AND (t.deleted_us IS NOT NULL) = ?4
    AND (?3 IS NULL OR (t.archived_us IS NOT NULL) = ?3) AND t.updated_us < ?5
    AND (?6 IS NULL OR t.no IN (SELECT f.thread_no FROM thread_labels f WHERE f.tenant_id = ?1 AND f.label = ?6))
    AND (?8 IS NULL OR t.updated_us >= ?8)
    AND (?9 IS NULL OR EXISTS (
        SELECT 1 FROM turns r INDEXED BY turns_by_owner
        WHERE r.tenant_id = t.tenant_id AND r.owner_id = t.owner_id AND r.surface = ?9 AND r.thread_no = t.no
    ))
    AND (?10 IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(?10) w WHERE NOT EXISTS (
            SELECT 1 FROM thread_labels f
            WHERE f.tenant_id = t.tenant_id AND f.label = w.value AND f.owner_id = t.owner_id AND f.thread_no = t.no
        )
    ))
ORDER BY t.id DESC LIMIT ?7;

-- name: find_taken
SELECT EXISTS (SELECT 1 FROM threads WHERE tenant_id = ?1 AND id = ?2),
    EXISTS (SELECT 1 FROM threads WHERE tenant_id = ?1 AND owner_id = ?3 AND state_key = ?4 AND deleted_us IS NULL);

-- name: find_key
SELECT 1 FROM threads WHERE tenant_id = ? AND owner_id = ? AND state_key = ? AND deleted_us IS NULL;

-- name: add_thread
-- The timeline is inserted next, and gets the number after the highest. Nothing happens if the id or the key is taken.
INSERT INTO threads (timeline_no, newest_timeline_no, tenant_id, id, owner_id, state_key, timeline_id, title,
    title_by_person, agent_id, model, system_prompt, working_dir, metadata, message_count, token_count, created_us,
    updated_us)
VALUES ((SELECT coalesce(max(no), 0) + 1 FROM timelines), (SELECT coalesce(max(no), 0) + 1 FROM timelines),
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: change_thread
UPDATE threads SET title = ?, title_by_person = ?, agent_id = ?, model = ?, system_prompt = ?, working_dir = ?,
    metadata = ?, archived_us = ?
WHERE tenant_id = ? AND id = ?;

-- name: suggest_title
UPDATE threads SET title = ?
WHERE tenant_id = ? AND id = ? AND (owner_id = ? OR ?) AND deleted_us IS NULL AND NOT title_by_person;

-- name: delete_thread
UPDATE threads SET deleted_us = ?
WHERE tenant_id = ? AND id = ? AND (owner_id = ? OR ?) AND deleted_us IS NULL;

-- name: restore_thread
UPDATE threads SET deleted_us = NULL WHERE tenant_id = ? AND id = ?;

-- name: find_idle_threads
SELECT t.no FROM threads t
WHERE t.tenant_id = ? AND t.owner_id = ? AND t.deleted_us IS NULL AND t.message_count = 0 AND t.updated_us < ?
    AND NOT EXISTS (
        WITH RECURSIVE own (no, base_no, earlier_no) AS (
            SELECT l.no, l.base_no, l.earlier_no FROM timelines l WHERE l.no = t.newest_timeline_no
            UNION ALL
            SELECT l.no, l.base_no, l.earlier_no FROM own JOIN timelines l ON l.no = own.earlier_no
        )
        SELECT 1 FROM own
        WHERE own.base_no IS NOT NULL OR EXISTS (SELECT 1 FROM messages m WHERE m.timeline_no = own.no)
    );
