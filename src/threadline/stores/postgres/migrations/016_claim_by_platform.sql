-- oldest compatible: 16
--
-- A worker claims deliveries only for the platforms that it can send to, so that rows for a bot in another process stay
-- for that bot. Without a list it claims for every platform.
DROP FUNCTION threadline.claim_outbox(text, text, text, text, timestamptz, timestamptz, integer, text);
CREATE FUNCTION threadline.claim_outbox(
    _tenant text, _owner text, _role text, _worker text, _until timestamptz, _now timestamptz, _limit integer,
    _abandoned text, _platforms text[]
) RETURNS SETOF threadline.outbox LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
BEGIN
    RETURN QUERY UPDATE threadline.outbox AS c SET status = 'claimed', claimed_by = _worker, claimed_until = _until,
        attempts = c.attempts + (c.status = 'claimed')::integer,
        last_error = CASE c.status WHEN 'claimed' THEN _abandoned ELSE c.last_error END
    WHERE c.tenant_id = _tenant AND c.id = ANY (ARRAY(
        SELECT o.id FROM threadline.outbox o
        WHERE o.tenant_id = _tenant AND o.status IN ('waiting', 'claimed')
            AND ((o.status = 'waiting' AND o.next_attempt_at <= _now)
                OR (o.status = 'claimed' AND o.claimed_until <= _now))
            AND (_platforms IS NULL OR o.platform = ANY (_platforms))
            AND NOT EXISTS (
                SELECT FROM threadline.outbox e
                WHERE e.tenant_id = _tenant AND e.platform = o.platform AND e.recipient = o.recipient
                    AND e.place < o.place AND e.status IN ('waiting', 'claimed')
            )
        ORDER BY o.place LIMIT _limit FOR UPDATE OF o SKIP LOCKED
    ))
    RETURNING c.*;
END $$;
