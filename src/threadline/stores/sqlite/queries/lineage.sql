-- name: find_head
SELECT t.no, t.owner_id, t.message_count, t.token_count, t.title, t.updated_us, l.no, l.id, l.ancestors,
    t.newest_timeline_no
FROM threads t JOIN timelines l ON l.no = t.timeline_no
WHERE t.tenant_id = ? AND t.id = ? AND (t.owner_id = ? OR ?) AND (t.deleted_us IS NULL OR ?);

-- name: find_thread_and_head
SELECT t.id, t.owner_id, t.state_key, t.timeline_id, t.title, t.title_by_person, t.agent_id, t.model, t.system_prompt,
    t.working_dir, t.metadata, t.message_count, t.token_count, t.created_us, t.updated_us, t.archived_us, t.deleted_us,
    t.no, l.no, l.ancestors, t.newest_timeline_no
FROM threads t JOIN timelines l ON l.no = t.timeline_no
WHERE t.tenant_id = ? AND t.id = ? AND (t.owner_id = ? OR ?) AND t.deleted_us IS NULL;

-- name: find_timeline
WITH RECURSIVE own (no, id, ancestors, earlier_no) AS (
    SELECT no, id, ancestors, earlier_no FROM timelines WHERE no = ?1
    UNION ALL
    SELECT l.no, l.id, l.ancestors, l.earlier_no FROM own JOIN timelines l ON l.no = own.earlier_no
)
SELECT no, id, ancestors FROM own WHERE id = ?2 LIMIT 1;

-- name: find_end
SELECT seq FROM messages WHERE timeline_no = ? ORDER BY seq DESC LIMIT 1;

-- name: add_timeline
INSERT INTO timelines (tenant_id, owner_id, id, thread_no, earlier_no, created_us, parent_id, parent_seq, base_no,
    base_seq, keeps_base, ancestors)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
