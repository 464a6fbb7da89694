-- name: accept
SELECT id, owner_id, state_key, timeline_id, title, title_by_person, agent_id, model, system_prompt, working_dir,
    metadata, message_count, token_count, created_at, updated_at, archived_at, deleted_at
FROM threadline.accept_at_once($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
    $20, $21, $22, $23, $24, $25, $26, $27)

-- name: finish
SELECT threadline.finish_at_once($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
