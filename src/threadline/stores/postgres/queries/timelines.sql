-- name: move_thread
SELECT problem, (result).id, (result).owner_id, (result).state_key, (result).timeline_id, (result).title,
    (result).title_by_person, (result).agent_id, (result).model, (result).system_prompt, (result).working_dir,
    (result).metadata, (result).message_count, (result).token_count, (result).created_at, (result).updated_at,
    (result).archived_at, (result).deleted_at
FROM threadline.move_thread($1, $2, $3, $4, $5, $6, $7, $8)

-- name: undo_turn
SELECT problem, (result).id, (result).owner_id, (result).state_key, (result).timeline_id, (result).title,
    (result).title_by_person, (result).agent_id, (result).model, (result).system_prompt, (result).working_dir,
    (result).metadata, (result).message_count, (result).token_count, (result).created_at, (result).updated_at,
    (result).archived_at, (result).deleted_at
FROM threadline.undo_turn($1, $2, $3, $4, $5, $6)

-- name: switch_timeline
SELECT problem, (result).id, (result).owner_id, (result).state_key, (result).timeline_id, (result).title,
    (result).title_by_person, (result).agent_id, (result).model, (result).system_prompt, (result).working_dir,
    (result).metadata, (result).message_count, (result).token_count, (result).created_at, (result).updated_at,
    (result).archived_at, (result).deleted_at
FROM threadline.switch_timeline($1, $2, $3, $4, $5, $6)

-- name: load_point
SELECT problem, (result).id, (result).owner_id, (result).state_key, (result).timeline_id, (result).title,
    (result).title_by_person, (result).agent_id, (result).model, (result).system_prompt, (result).working_dir,
    (result).metadata, (result).message_count, (result).token_count, (result).created_at, (result).updated_at,
    (result).archived_at, (result).deleted_at
FROM threadline.load_point($1, $2, $3, $4, $5, $6, $7)

-- name: save_point
SELECT problem, (result).name, (result).timeline_id, (result).seq, (result).thread_id, (result).created_at
FROM threadline.save_point($1, $2, $3, $4, $5, $6, $7)

-- name: is_living
SELECT FROM threadline.threads WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL

-- name: list_timelines
SELECT id, thread_id, parent_id, parent_seq, threadline.top_of($1, $2, id) + 1, created_at
FROM threadline.timelines WHERE tenant_id = $1 AND thread_id = $2 ORDER BY created_at, id

-- name: list_saved_points
SELECT name, timeline_id, seq, thread_id, created_at FROM threadline.saved_points
WHERE tenant_id = $1 AND owner_id = $2 ORDER BY name

-- name: find_saved_point
SELECT name, timeline_id, seq, thread_id, created_at FROM threadline.saved_points
WHERE tenant_id = $1 AND owner_id = $2 AND name = $3

-- name: forget_saved_point
DELETE FROM threadline.saved_points WHERE tenant_id = $1 AND owner_id = $2 AND name = $3
