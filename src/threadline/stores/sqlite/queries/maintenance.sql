-- name: find_wrong_counts
SELECT t.tenant_id, t.id FROM threads t JOIN timelines l ON l.no = t.timeline_no
WHERE t.message_count <> coalesce(
    (SELECT m.seq + 1 FROM messages m WHERE m.timeline_no = l.no ORDER BY m.seq DESC LIMIT 1),
    l.base_seq + 1,
    0
);

-- name: find_wrong_timelines
SELECT t.tenant_id, t.id FROM threads t LEFT JOIN timelines l ON l.no = t.timeline_no
WHERE t.timeline_id IS NOT l.id OR t.no IS NOT l.thread_no;

-- name: find_gaps
SELECT l.tenant_id, l.id
FROM timelines l JOIN (
    SELECT timeline_no, min(seq) AS first, max(seq) AS last, count(*) AS held FROM messages GROUP BY timeline_no
) m ON m.timeline_no = l.no
WHERE m.first <> coalesce(l.base_seq + 1, 0) OR m.held <> m.last - m.first + 1;

-- name: find_stray_timelines
SELECT l.tenant_id, l.id
FROM timelines l LEFT JOIN threads t ON t.no = l.thread_no LEFT JOIN timelines b ON b.no = l.base_no
WHERE l.base_no IS NOT b.no OR l.thread_no IS NOT t.no
    OR (l.no <> t.newest_timeline_no AND l.no NOT IN (SELECT earlier_no FROM timelines WHERE earlier_no IS NOT NULL));
