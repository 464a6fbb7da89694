-- oldest compatible: 8
--
-- Retries end so long after a delivery was enqueued or requeued. To an older program a requeued delivery is old.

ALTER TABLE outbox ADD COLUMN requeued_us INTEGER;

-- Held replies are looked for whenever their recipient writes, and listed by platform for operators.
CREATE INDEX outbox_undelivered ON outbox (tenant_id, platform, recipient, no)
    WHERE status IN ('dead', 'window_closed');
