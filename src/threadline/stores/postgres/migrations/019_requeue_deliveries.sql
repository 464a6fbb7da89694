-- oldest compatible: 19
--
-- Retries end so long after a delivery was enqueued or requeued. Workers also say which of them are gone: the function
-- that claims deliveries has other parameters.

ALTER TABLE threadline.outbox ADD COLUMN requeued_at timestamptz;

-- Held replies are looked for whenever their recipient writes, and listed by platform for operators.
CREATE INDEX outbox_undelivered ON threadline.outbox (tenant_id, platform, recipient, place)
    WHERE status IN ('dead', 'window_closed');
