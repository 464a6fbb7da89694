-- name: create_thread
SELECT problem, (result).id, (result).owner_id, (result).state_key, (result).timeline_id, (result).title,
    (result).title_by_person, (result).agent_id, (result).model, (result).system_prompt, (result).working_dir,
    (result).metadata, (result).message_count, (result).token_count, (result).created_at, (result).updated_at,
    (result).archived_at, (result).deleted_at
FROM threadline.create_thread($1, $2, $3, $4, $5)

-- name: branch_thread
SELECT problem, (result).id, (result).owner_id, (result).state_key, (result).timeline_id, (result).title,
    (result).title_by_person, (result).agent_id, (result).model, (result).system_prompt, (result).working_dir,
    (result).metadata, (result).message_count, (result).token_count, (result).created_at, (result).updated_at,
    (result).archived_at, (result).deleted_at
FROM threadline.branch_thread($1, $2, $3, $4, $5, $6, $7)

-- name: find_thread
SELECT id, owner_id, state_key, timeline_id, title, title_by_person, agent_id, model, system_prompt, working_dir,
    metadata, message_count, token_count, created_at, updated_at, archived_at, deleted_at
FROM threadline.find_thread($1, $2, $3, $4, $5, $6)

-- name: list_threads
-- Times as numbers, because converting timestamps took the driver a quarter of the time of a list.
SELECT id, owner_id, state_key, timeline_id, title, title_by_person, agent_id, model, system_prompt, working_dir,
    metadata, message_count, token_count, (extract(epoch FROM created_at) * 1000000)::bigint AS created_us,
    (extract(epoch FROM updated_at) * 1000000)::bigint AS updated_us, archived_at, deleted_at
FROM threadline.list_threads($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: filter_threads
SELECT id, owner_id, state_key, timeline_id, title, title_by_person, agent_id, model, system_prompt, working_dir,
    metadata, message_count, token_count, (extract(epoch FROM created_at) * 1000000)::bigint AS created_us,
    (extract(epoch FROM updated_at) * 1000000)::bigint AS updated_us, archived_at, deleted_at
FROM threadline.filter_threads($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- name: list_tenant_threads
SELECT id, owner_id, state_key, timeline_id, title, title_by_person, agent_id, model, system_prompt, working_dir,
    metadata, message_count, token_count, (extract(epoch FROM created_at) * 1000000)::bigint AS created_us,
    (extract(epoch FROM updated_at) * 1000000)::bigint AS updated_us, archived_at, deleted_at
FROM threadline.list_tenant_threads($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: label_thread
SELECT threadline.label_thread($1, $2, $3, $4, $5)

-- name: update_thread
UPDATE threadline.threads SET
    title = CASE WHEN 'title' = ANY ($3::text[]) THEN $4 ELSE title END,
    title_by_person = CASE WHEN 'title_by_person' = ANY ($3) THEN $5::boolean ELSE title_by_person END,
    agent_id = CASE WHEN 'agent_id' = ANY ($3) THEN $6 ELSE agent_id END,
    model = CASE WHEN 'model' = ANY ($3) THEN $7 ELSE model END,
    system_prompt = CASE WHEN 'system_prompt' = ANY ($3) THEN $8 ELSE system_prompt END,
    working_dir = CASE WHEN 'working_dir' = ANY ($3) THEN $9 ELSE working_dir END,
    metadata = CASE WHEN 'metadata' = ANY ($3) THEN $10 ELSE metadata END,
    archived_at = CASE
        WHEN 'archived' <> ALL ($3) THEN archived_at
        WHEN $11::boolean THEN coalesce(archived_at, $12)
    END
WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL
RETURNING id, owner_id, state_key, timeline_id, title, title_by_person, agent_id, model, system_prompt, working_dir,
    metadata, message_count, token_count, created_at, updated_at, archived_at, deleted_at

-- name: suggest_title
UPDATE threadline.threads SET title = $3
WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL AND NOT title_by_person

-- name: delete_thread
UPDATE threadline.threads SET deleted_at = $3 WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL

-- name: lock_deleted_thread
SELECT owner_id, state_key FROM threadline.threads
WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NOT NULL FOR UPDATE

-- name: is_key_taken
SELECT FROM threadline.threads WHERE tenant_id = $1 AND owner_id = $2 AND state_key = $3 AND deleted_at IS NULL

-- name: restore_thread
UPDATE threadline.threads SET deleted_at = NULL WHERE tenant_id = $1 AND id = $2
RETURNING id, owner_id, state_key, timeline_id, title, title_by_person, agent_id, model, system_prompt, working_dir,
    metadata, message_count, token_count, created_at, updated_at, archived_at, deleted_at

-- name: prune_threads
SELECT threadline.prune_threads($1, $2, $3) AS pruned

-- name: move_thread
SELECT problem, (result).id, (result).owner_id, (result).state_key, (result).timeline_id, (result).title,
    (result).title_by_person, (result).agent_id, (result).model, (result).system_prompt, (result).working_dir,
    (result).metadata, (result).message_count, (result).token_count, (result).created_at, (result).updated_at,
    (result).archived_at, (result).deleted_at
FROM threadline.move_thread($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: undo_turn
SELECT problem, (result).id, (result).owner_id, (result).state_key, (result).timeline_id, (result).title,
    (result).title_by_person, (result).agent_id, (result).model, (result).system_prompt, (result).working_dir,
    (result).metadata, (result).message_count, (result).token_count, (result).created_at, (result).updated_at,
    (result).archived_at, (result).deleted_at
FROM threadline.undo_turn($1, $2, $3, $4, $5, $6, $7, $8)

-- name: switch_timeline
SELECT problem, (result).id, (result).owner_id, (result).state_key, (result).timeline_id, (result).title,
    (result).title_by_person, (result).agent_id, (result).model, (result).system_prompt, (result).working_dir,
    (result).metadata, (result).message_count, (result).token_count, (result).created_at, (result).updated_at,
    (result).archived_at, (result).deleted_at
FROM threadline.switch_timeline($1, $2, $3, $4, $5, $6, $7, $8)

-- name: load_point
SELECT problem, (result).id, (result).owner_id, (result).state_key, (result).timeline_id, (result).title,
    (result).title_by_person, (result).agent_id, (result).model, (result).system_prompt, (result).working_dir,
    (result).metadata, (result).message_count, (result).token_count, (result).created_at, (result).updated_at,
    (result).archived_at, (result).deleted_at
FROM threadline.load_point($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: save_point
SELECT problem, (result).name, (result).timeline_id, (result).seq, (result).thread_id, (result).created_at
FROM threadline.save_point($1, $2, $3, $4, $5, $6, $7)

-- name: is_live
SELECT FROM threadline.threads WHERE tenant_id = $1 AND id = $2 AND ($3 OR deleted_at IS NULL)

-- name: list_timelines
SELECT id, thread_id, parent_id, parent_seq, message_count, created_at FROM threadline.list_timelines($1, $2)

-- name: list_saved_points
SELECT name, timeline_id, seq, thread_id, created_at FROM threadline.saved_points
WHERE tenant_id = $1 AND owner_id = $2 ORDER BY name

-- name: find_saved_point
SELECT name, timeline_id, seq, thread_id, created_at FROM threadline.saved_points
WHERE tenant_id = $1 AND owner_id = $2 AND name = $3

-- name: forget_saved_point
DELETE FROM threadline.saved_points WHERE tenant_id = $1 AND owner_id = $2 AND name = $3
