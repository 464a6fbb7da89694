-- name: has_any
SELECT 1 FROM hidden_parts LIMIT 1;

-- name: list_hidden
SELECT l.id, h.seq, h.part
FROM carray(?1) s CROSS JOIN hidden_parts h CROSS JOIN timelines l ON l.no = h.timeline_no
WHERE h.timeline_no = s.value >> 32 AND h.seq <= s.value & 4294967295 AND h.seq >= ?2;

-- name: list_hidden_of_message
SELECT h.part FROM messages m JOIN hidden_parts h ON h.timeline_no = m.timeline_no AND h.seq = m.seq WHERE m.no = ?;

-- name: list_own_timelines
WITH RECURSIVE own (no, ancestors, earlier_no) AS (
    SELECT no, ancestors, earlier_no FROM timelines WHERE no = ?
    UNION ALL
    SELECT l.no, l.ancestors, l.earlier_no FROM own JOIN timelines l ON l.no = own.earlier_no
)
SELECT no, ancestors FROM own;

-- name: name_timelines
SELECT l.no, l.id FROM carray(?1) s CROSS JOIN timelines l ON l.no = s.value;

-- name: has_message
SELECT 1 FROM messages WHERE timeline_no = ? AND seq = ?;

-- name: add_hidden
INSERT INTO hidden_parts (timeline_no, seq, part, turn_id, hidden_us) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: mark_turn
UPDATE hidden_parts SET turn_id = ?4 WHERE timeline_no = ?1 AND seq = ?2 AND part = ?3;

-- name: copy_hidden
INSERT INTO hidden_parts (timeline_no, seq, part, turn_id, hidden_us)
SELECT ?1, h.seq, h.part, h.turn_id, h.hidden_us
FROM carray(?2) s CROSS JOIN hidden_parts h
WHERE h.timeline_no = s.value >> 32 AND h.seq <= s.value & 4294967295 AND h.seq > ?3
ON CONFLICT DO NOTHING;

-- name: list_summaries
SELECT x.no, x.timeline_no, x.seq, l.ancestors
FROM summaries x CROSS JOIN timelines l ON l.no = x.timeline_no WHERE l.tenant_id = ? AND l.owner_id = ?;

-- name: remove_summary
DELETE FROM summaries WHERE no = ?;

-- name: is_turn_hidden
SELECT 1 FROM hidden_parts h JOIN timelines l ON l.no = h.timeline_no
WHERE h.turn_id = ?1 AND l.tenant_id = ?2 AND (l.owner_id = ?3 OR ?4) LIMIT 1;
