-- name: claim_inbox
SELECT platform, key, status, decision, turn_id, fingerprint, correlation_id, reply_to, owner_id, created_at,
    updated_at
FROM threadline.claim_inbox($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: settle_inbox
UPDATE threadline.inbox SET status = $4, decision = $5, turn_id = $6, updated_at = $7
WHERE tenant_id = $1 AND platform = $2 AND key = $3

-- name: find_inbox
SELECT platform, key, status, decision, turn_id, fingerprint, correlation_id, reply_to, owner_id, created_at,
    updated_at
FROM threadline.inbox WHERE tenant_id = $1 AND platform = $2 AND key = $3

-- name: list_inbox
SELECT platform, key, status, decision, turn_id, fingerprint, correlation_id, reply_to, owner_id, created_at,
    updated_at
FROM threadline.inbox
WHERE tenant_id = $1 AND ($2::text IS NULL OR owner_id = $2) AND ($3::text IS NULL OR status = $3)
    AND ($5::text IS NULL OR platform = $5)
ORDER BY created_at DESC, platform, key LIMIT $4

-- name: list_unanswered
SELECT i.platform, i.key, i.status, i.decision, i.turn_id, i.fingerprint, i.correlation_id, i.reply_to, i.owner_id,
    i.created_at, i.updated_at
FROM threadline.inbox i LEFT JOIN threadline.turns t ON t.tenant_id = i.tenant_id AND t.id = i.turn_id
WHERE i.tenant_id = $1 AND i.status = 'accepted' AND (t.id IS NULL OR t.status NOT IN ('accepted', 'running'))
ORDER BY i.created_at LIMIT $2

-- name: drop_inbox
DELETE FROM threadline.inbox WHERE tenant_id = $1 AND created_at < $2 AND status IN ('done', 'dead')

-- name: drop_outbox
DELETE FROM threadline.outbox WHERE tenant_id = $1 AND sent_at < $2 AND status = 'sent'

-- name: enqueue
SELECT id, turn_id, owner_id, platform, recipient, payload, status, attempts, next_attempt_at, claimed_by,
    claimed_until, last_error, created_at, sent_at, requeued_at, message_id
FROM threadline.enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: find_outbox
SELECT id, turn_id, owner_id, platform, recipient, payload, status, attempts, next_attempt_at, claimed_by,
    claimed_until, last_error, created_at, sent_at, requeued_at, message_id
FROM threadline.outbox WHERE tenant_id = $1 AND id = $2

-- name: claim_outbox
SELECT id, turn_id, owner_id, platform, recipient, payload, status, attempts, next_attempt_at, claimed_by,
    claimed_until, last_error, created_at, sent_at, requeued_at, message_id
FROM threadline.claim_outbox($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ORDER BY place

-- name: settle_outbox
SELECT threadline.settle_outbox($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: report_outbox
UPDATE threadline.outbox SET status = $4, last_error = $5, sent_at = CASE WHEN $4 = 'sent' THEN $6::timestamptz END
WHERE tenant_id = $1 AND id = $2 AND status = $3 AND attempts > 0

-- name: list_outbox
SELECT id, turn_id, owner_id, platform, recipient, payload, status, attempts, next_attempt_at, claimed_by,
    claimed_until, last_error, created_at, sent_at, requeued_at, message_id
FROM threadline.outbox
WHERE tenant_id = $1 AND ($2::text IS NULL OR owner_id = $2) AND ($3::text IS NULL OR status = $3)
    AND ($5::text IS NULL OR platform = $5)
ORDER BY place DESC LIMIT $4

-- name: list_workers
SELECT DISTINCT claimed_by FROM threadline.outbox WHERE tenant_id = $1 AND status = 'claimed' ORDER BY claimed_by

-- name: list_backlog
SELECT platform, status, count(*)::integer AS count, min(created_at) AS oldest_at,
    (array_agg(last_error ORDER BY place) FILTER (WHERE last_error IS NOT NULL))[1] AS last_error
FROM threadline.outbox WHERE tenant_id = $1 AND status IN ('waiting', 'claimed', 'dead', 'window_closed')
GROUP BY platform, status ORDER BY platform, status

-- name: requeue_all
UPDATE threadline.outbox SET status = 'waiting', attempts = 0, next_attempt_at = $2, requeued_at = $2
WHERE tenant_id = $1 AND status IN ('dead', 'window_closed') AND status = ANY ($4::text[])
    AND ($3::text IS NULL OR owner_id = $3) AND ($5::text IS NULL OR platform = $5)
    AND ($6::text IS NULL OR recipient = $6) AND ($7::timestamptz IS NULL OR created_at >= $7)

-- name: requeue
UPDATE threadline.outbox SET status = 'waiting', attempts = 0, next_attempt_at = $3, requeued_at = $3
WHERE tenant_id = $1 AND id = $2 AND status IN ('dead', 'window_closed')
RETURNING id, turn_id, owner_id, platform, recipient, payload, status, attempts, next_attempt_at, claimed_by,
    claimed_until, last_error, created_at, sent_at, requeued_at, message_id

-- name: put_credentials
INSERT INTO threadline.credentials (tenant_id, platform, key_id, sealed, updated_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant_id, platform)
DO UPDATE SET key_id = excluded.key_id, sealed = excluded.sealed, updated_at = excluded.updated_at
RETURNING platform, key_id, sealed, updated_at

-- name: find_credentials
SELECT platform, key_id, sealed, updated_at FROM threadline.find_credentials($1, $2, $3, $4)

-- name: list_credentials
SELECT platform, key_id, sealed, updated_at FROM threadline.credentials WHERE tenant_id = $1 ORDER BY platform

-- name: delete_credentials
DELETE FROM threadline.credentials WHERE tenant_id = $1 AND platform = $2
