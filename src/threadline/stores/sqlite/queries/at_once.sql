-- name: find_active_turn
SELECT 1 FROM turns INDEXED BY turns_active
WHERE tenant_id = ? AND thread_no = ? AND status IN ('accepted', 'running') LIMIT 1;

-- name: find_request
SELECT 1 FROM messages WHERE timeline_no = ? AND seq = ? AND turn_id = ? AND role = ?;
