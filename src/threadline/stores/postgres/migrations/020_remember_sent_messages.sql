-- oldest compatible: 20
--
-- The platform's id of a delivery that was sent, so that it can be edited later: buttons are replaced by their outcome.
-- The function that settles deliveries has another parameter.

ALTER TABLE threadline.outbox ADD COLUMN message_id text;
