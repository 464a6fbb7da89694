-- oldest compatible: 8
--
-- The platform's id of a delivery that was sent, so that it can be edited later: buttons are replaced by their outcome.

ALTER TABLE outbox ADD COLUMN message_id TEXT;
