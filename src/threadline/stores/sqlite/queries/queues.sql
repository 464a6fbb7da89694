-- name: find_claim
SELECT 1 FROM inbox WHERE tenant_id = ? AND platform = ? AND key = ?;

-- name: add_inbox
INSERT INTO inbox (tenant_id, platform, key, status, fingerprint, correlation_id, reply_to, owner_id, created_us,
    updated_us)
VALUES (?, ?, ?, 'claimed', ?, ?, ?, ?, ?, ?);

-- name: settle_inbox
UPDATE inbox SET status = ?, decision = ?, turn_id = ?, updated_us = ?
WHERE tenant_id = ? AND platform = ? AND key = ? AND (owner_id = ? OR ?);

-- name: find_inbox
SELECT platform, key, status, decision, turn_id, fingerprint, correlation_id, reply_to, owner_id, created_us,
    updated_us
FROM inbox WHERE tenant_id = ? AND platform = ? AND key = ? AND (owner_id = ? OR ?);

-- name: list_inbox
SELECT platform, key, status, decision, turn_id, fingerprint, correlation_id, reply_to, owner_id, created_us,
    updated_us
FROM inbox INDEXED BY inbox_by_age WHERE tenant_id = ?1 AND (owner_id = ?2 OR ?3) AND (?4 IS NULL OR status = ?4)
    AND (?6 IS NULL OR platform = ?6)
ORDER BY created_us DESC, platform, key LIMIT ?5;

-- name: list_unanswered
SELECT i.platform, i.key, i.status, i.decision, i.turn_id, i.fingerprint, i.correlation_id, i.reply_to, i.owner_id,
    i.created_us, i.updated_us
FROM inbox i INDEXED BY inbox_open LEFT JOIN turns t ON t.tenant_id = i.tenant_id AND t.id = i.turn_id
WHERE i.tenant_id = ? AND i.status = 'accepted' AND (t.no IS NULL OR t.status NOT IN ('accepted', 'running'))
ORDER BY i.created_us LIMIT ?;

-- name: drop_inbox
DELETE FROM inbox WHERE tenant_id = ? AND created_us < ? AND status IN ('done', 'dead');

-- name: drop_outbox
DELETE FROM outbox WHERE tenant_id = ? AND sent_us < ? AND status = 'sent';

-- name: find_outbox
SELECT id, turn_id, owner_id, platform, recipient, payload, status, attempts, next_attempt_us, claimed_by,
    claimed_until_us, last_error, created_us, sent_us, requeued_us, message_id
FROM outbox WHERE tenant_id = ? AND id = ? AND (owner_id = ? OR ?);

-- name: is_enqueued
SELECT owner_id FROM outbox WHERE tenant_id = ? AND id = ?;

-- name: enqueue
INSERT INTO outbox (tenant_id, id, owner_id, turn_id, platform, recipient, payload, status, attempts, next_attempt_us,
    created_us)
VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting', 0, ?, ?);

-- name: find_due
SELECT o.id FROM outbox o INDEXED BY outbox_pending
WHERE o.tenant_id = ?1 AND o.status IN ('waiting', 'claimed')
    AND ((o.status = 'waiting' AND o.next_attempt_us <= ?2) OR (
        o.status = 'claimed' AND (o.claimed_until_us <= ?2 OR o.claimed_by IN (SELECT value FROM json_each(?5)))
    ))
    AND o.id NOT IN (SELECT value FROM json_each(?6))
    AND (?4 IS NULL OR o.platform IN (SELECT value FROM json_each(?4)))
    AND NOT EXISTS (
        SELECT 1 FROM outbox e INDEXED BY outbox_by_recipient
        WHERE e.tenant_id = ?1 AND e.platform = o.platform AND e.recipient = o.recipient AND e.no < o.no
            AND e.status IN ('waiting', 'claimed')
    )
ORDER BY o.no LIMIT ?3;

-- name: claim_outbox
UPDATE outbox SET status = 'claimed', claimed_by = ?1, claimed_until_us = ?2,
    attempts = attempts + (status = 'claimed'), last_error = CASE status WHEN 'claimed' THEN ?3 ELSE last_error END
WHERE tenant_id = ?4 AND id = ?5;

-- name: settle_outbox
UPDATE outbox SET status = ?1, attempts = attempts + 1, next_attempt_us = coalesce(?2, next_attempt_us),
    last_error = ?3, sent_us = ?4, message_id = ?5, claimed_by = NULL, claimed_until_us = NULL
WHERE tenant_id = ?6 AND id = ?7 AND (owner_id = ?8 OR ?9) AND status = 'claimed' AND claimed_by = ?10;

-- name: report_outbox
UPDATE outbox SET status = ?1, last_error = ?2, sent_us = ?3
WHERE tenant_id = ?4 AND id = ?5 AND status = ?6 AND attempts > 0;

-- name: list_outbox
SELECT id, turn_id, owner_id, platform, recipient, payload, status, attempts, next_attempt_us, claimed_by,
    claimed_until_us, last_error, created_us, sent_us, requeued_us, message_id
FROM outbox WHERE tenant_id = ?1 AND (owner_id = ?2 OR ?3) AND (?4 IS NULL OR status = ?4)
    AND (?6 IS NULL OR platform = ?6)
ORDER BY no DESC LIMIT ?5;

-- name: list_workers
SELECT DISTINCT claimed_by FROM outbox INDEXED BY outbox_pending
WHERE tenant_id = ? AND status IN ('waiting', 'claimed') AND status = 'claimed' ORDER BY claimed_by;

-- name: list_backlog
SELECT o.platform, o.status, count(*) AS count, min(o.created_us) AS oldest_us, (
    SELECT e.last_error FROM outbox e
    WHERE e.tenant_id = o.tenant_id AND e.status = o.status AND e.platform = o.platform AND e.last_error IS NOT NULL
    ORDER BY e.no LIMIT 1
) AS last_error
FROM outbox o WHERE o.tenant_id = ? AND o.status IN ('waiting', 'claimed', 'dead', 'window_closed')
GROUP BY o.tenant_id, o.platform, o.status ORDER BY o.platform, o.status;

-- name: requeue
UPDATE outbox SET status = 'waiting', attempts = 0, next_attempt_us = ?1, requeued_us = ?1
WHERE tenant_id = ?2 AND id = ?3;

-- name: requeue_all
UPDATE outbox SET status = 'waiting', attempts = 0, next_attempt_us = ?1, requeued_us = ?1
WHERE tenant_id = ?2 AND status IN ('dead', 'window_closed') AND status IN (SELECT value FROM json_each(?5))
    AND (owner_id = ?3 OR ?4) AND (?6 IS NULL OR platform = ?6) AND (?7 IS NULL OR recipient = ?7)
    AND (?8 IS NULL OR created_us >= ?8);
