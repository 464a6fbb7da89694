-- name: find_active_turns
SELECT no, id, lease_owner FROM turns INDEXED BY turns_active
WHERE tenant_id = ? AND thread_no = ? AND status IN ('accepted', 'running') ORDER BY no;

-- name: find_request
SELECT role FROM messages WHERE timeline_no = ? AND seq = ? AND turn_id = ?;
