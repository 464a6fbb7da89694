CREATE FUNCTION threadline.find_credentials(_tenant text, _owner text, _role text, _platform text)
RETURNS SETOF threadline.credentials LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
BEGIN
    RETURN QUERY SELECT * FROM threadline.credentials c WHERE c.tenant_id = _tenant AND c.platform = _platform;
END $$;

-- Which user a sender on a platform is.
CREATE FUNCTION threadline.find_sender(_tenant text, _owner text, _role text, _platform text, _sender text)
RETURNS TABLE (owner_id text, state text, role text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
BEGIN
    RETURN QUERY SELECT l.owner_id::text, CASE WHEN u.disabled_at IS NULL THEN l.state ELSE 'revoked' END, u.role
        FROM threadline.links l JOIN threadline.users u ON u.tenant_id = _tenant AND u.id = l.owner_id
        WHERE l.tenant_id = _tenant AND l.platform = _platform AND l.platform_user_id = _sender;
END $$;

CREATE FUNCTION threadline.claim_inbox(
    _tenant text, _owner text, _role text, _now_us bigint, _platform text, _key text, _fingerprint text,
    _correlation text, _reply_to text, _holder text
) RETURNS SETOF threadline.inbox LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    now constant timestamptz := threadline.from_us(_now_us);
BEGIN
    PERFORM threadline.ensure_user(_tenant, coalesce(_holder, _owner), _now_us);
    RETURN QUERY INSERT INTO threadline.inbox AS i (tenant_id, platform, key, status, fingerprint, correlation_id,
        reply_to, owner_id, created_at, updated_at)
    VALUES (_tenant, _platform, _key, 'claimed', _fingerprint, _correlation, _reply_to, _holder, now, now)
    ON CONFLICT DO NOTHING RETURNING i.*;
END $$;

-- Returns the row with this id, also if it was enqueued before.
CREATE FUNCTION threadline.enqueue(
    _tenant text, _owner text, _role text, _now_us bigint, _id text, _holder text, _turn text, _platform text,
    _recipient text, _payload text
) RETURNS SETOF threadline.outbox LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    now constant timestamptz := threadline.from_us(_now_us);
BEGIN
    PERFORM threadline.ensure_user(_tenant, _holder, _now_us);
    RETURN QUERY INSERT INTO threadline.outbox AS o (tenant_id, id, owner_id, turn_id, platform, recipient, payload,
        status, next_attempt_at, created_at)
    VALUES (_tenant, _id, _holder, _turn, _platform, _recipient, _payload, 'waiting', now, now)
    ON CONFLICT DO NOTHING RETURNING o.*;
    IF NOT FOUND THEN
        RETURN QUERY SELECT * FROM threadline.outbox o WHERE o.tenant_id = _tenant AND o.id = _id;
    END IF;
END $$;

-- Claims deliveries for the platforms that this worker can send to, all platforms without a list, so that the rows of a
-- bot in another process stay for that bot. A row behind an earlier one for the same recipient has to wait for it.
-- Claims of workers that are gone are taken over at once, and the rows that this worker holds are left to it.
CREATE FUNCTION threadline.claim_outbox(
    _tenant text, _owner text, _role text, _worker text, _until timestamptz, _now timestamptz, _limit integer,
    _abandoned text, _platforms text[], _gone text[], _holding text[]
) RETURNS SETOF threadline.outbox LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
BEGIN
    RETURN QUERY UPDATE threadline.outbox AS c SET status = 'claimed', claimed_by = _worker, claimed_until = _until,
        attempts = c.attempts + (c.status = 'claimed')::integer,
        last_error = CASE WHEN c.status = 'claimed' THEN _abandoned ELSE c.last_error END
    WHERE c.tenant_id = _tenant AND c.id = ANY (ARRAY(
        SELECT o.id FROM threadline.outbox o
        WHERE o.tenant_id = _tenant AND o.status IN ('waiting', 'claimed')
            AND ((o.status = 'waiting' AND o.next_attempt_at <= _now)
                OR (o.status = 'claimed' AND (o.claimed_until <= _now OR o.claimed_by = ANY (_gone))))
            AND o.id <> ALL (_holding) AND (_platforms IS NULL OR o.platform = ANY (_platforms))
            AND NOT EXISTS (
                SELECT FROM threadline.outbox e
                WHERE e.tenant_id = _tenant AND e.platform = o.platform AND e.recipient = o.recipient
                    AND e.place < o.place AND e.status IN ('waiting', 'claimed')
            )
        ORDER BY o.place LIMIT _limit FOR UPDATE OF o SKIP LOCKED
    ))
    RETURNING c.*;
END $$;

CREATE FUNCTION threadline.settle_outbox(
    _tenant text, _owner text, _role text, _now timestamptz, _id text, _worker text, _status text, _next timestamptz,
    _error text, _message_id text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
BEGIN
    UPDATE threadline.outbox o SET status = _status, attempts = o.attempts + 1,
        next_attempt_at = coalesce(_next, o.next_attempt_at), last_error = _error,
        sent_at = CASE WHEN _status = 'sent' THEN _now END, message_id = _message_id, claimed_by = NULL,
        claimed_until = NULL
    WHERE o.tenant_id = _tenant AND o.id = _id AND o.status = 'claimed' AND o.claimed_by = _worker;
    RETURN FOUND;
END $$;
