-- oldest compatible: 10
--
-- What every message of a platform does, each as one function and so as one round trip: finding out who wrote, taking
-- it in, leasing its turn, and delivering the reply.

CREATE FUNCTION threadline.find_credentials(_tenant text, _owner text, _role text, _platform text)
RETURNS SETOF threadline.credentials LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
BEGIN
    RETURN QUERY SELECT * FROM threadline.credentials c WHERE c.tenant_id = _tenant AND c.platform = _platform;
END $$;

-- Who somebody on a platform is here.
CREATE FUNCTION threadline.find_sender(_tenant text, _owner text, _role text, _platform text, _sender text)
RETURNS TABLE (owner_id text, state text, role text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
BEGIN
    RETURN QUERY SELECT l.owner_id::text, l.state, u.role
        FROM threadline.links l JOIN threadline.users u ON u.tenant_id = _tenant AND u.id = l.owner_id
        WHERE l.tenant_id = _tenant AND l.platform = _platform AND l.platform_user_id = _sender;
END $$;

-- The common case and nothing else: where anything stands in the way this writes nothing and answers nothing, and the
-- caller goes step by step and learns what it is. One user's works stand in line, as in every transaction of several
-- steps; what is looked up here holds until the end of it. A question that waits for an answer is kept with the place.
CREATE FUNCTION threadline.take_arrival(
    _tenant text, _owner text, _role text, _now_us bigint,
    _platform text, _key text, _fingerprint text, _correlation text, _reply_to text, _place text,
    _turn text, _agent text, _turn_key text, _hash bytea,
    _message text, _parts bytea, _metadata bytea, _title text, _most integer
) RETURNS SETOF threadline.turns LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    now constant timestamptz := threadline.moment(_now_us);
    thread text;
    placed text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(_tenant || '/' || _owner, 1));
    SELECT b.thread_id INTO thread FROM threadline.bindings b
    WHERE b.tenant_id = _tenant AND b.surface = _platform AND b.place = _place AND b.owner_id = _owner
        AND (b.metadata IS NULL OR position('pending'::bytea IN b.metadata) = 0);
    IF NOT FOUND OR EXISTS (
        SELECT FROM threadline.turns r
        WHERE r.tenant_id = _tenant AND r.owner_id = _owner AND r.idempotency_key = _turn_key
    ) THEN
        RETURN;
    END IF;
    -- Whether another owner has claimed it is not in sight here: the insert finds out, and does nothing.
    INSERT INTO threadline.inbox (tenant_id, platform, key, owner_id, status, decision, turn_id, fingerprint,
        correlation_id, reply_to, created_at, updated_at)
    VALUES (_tenant, _platform, _key, _owner, 'accepted', 'accepted', _turn, _fingerprint, _correlation, _reply_to, now,
        now) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    placed := threadline.append(
        _tenant, _owner, _role, _now_us, thread, ARRAY[_message], 'u', ARRAY[_parts],
        CASE WHEN _metadata IS NOT NULL THEN ARRAY[_metadata] END, NULL, NULL, NULL, NULL, _most, _turn, 0, _title
    );
    IF placed IS NULL THEN
        DELETE FROM threadline.inbox i WHERE i.tenant_id = _tenant AND i.platform = _platform AND i.key = _key;
        RETURN;
    END IF;
    -- The append has locked the thread's row, so the place in line is the order in which turns become visible.
    RETURN QUERY INSERT INTO threadline.turns AS r (tenant_id, id, owner_id, thread_id, surface, agent_id, status,
        idempotency_key, request_hash, request_seq, created_at)
    VALUES (_tenant, _turn, _owner, thread, _platform, _agent, 'accepted', _turn_key, _hash,
        split_part(placed, ' ', 2)::integer, now)
    RETURNING r.*;
END $$;

CREATE FUNCTION threadline.claim_inbox(
    _tenant text, _owner text, _role text, _now_us bigint, _platform text, _key text, _fingerprint text,
    _correlation text, _reply_to text, _holder text
) RETURNS SETOF threadline.inbox LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    now constant timestamptz := threadline.moment(_now_us);
BEGIN
    PERFORM threadline.introduce(_tenant, coalesce(_holder, _owner), _now_us);
    RETURN QUERY INSERT INTO threadline.inbox AS i (tenant_id, platform, key, status, fingerprint, correlation_id,
        reply_to, owner_id, created_at, updated_at)
    VALUES (_tenant, _platform, _key, 'claimed', _fingerprint, _correlation, _reply_to, _holder, now, now)
    ON CONFLICT DO NOTHING RETURNING i.*;
END $$;

-- None for a turn that is not to be had now: it has ended, is somebody else's, or an earlier one of its thread is active.
CREATE FUNCTION threadline.lease_turn(
    _tenant text, _owner text, _role text, _turn text, _worker text, _until timestamptz, _now timestamptz
) RETURNS SETOF threadline.turns LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    leased threadline.turns;
BEGIN
    UPDATE threadline.turns t SET status = 'running', fence = t.fence + 1, lease_owner = _worker, lease_until = _until
    WHERE t.tenant_id = _tenant AND t.id = _turn
        AND (t.status = 'accepted' OR (t.status = 'running' AND t.lease_until <= _now))
        AND NOT EXISTS (
            SELECT FROM threadline.turns e
            WHERE e.tenant_id = _tenant AND e.thread_id = t.thread_id AND e.place < t.place
                AND e.status IN ('accepted', 'running')
        )
    RETURNING t.* INTO leased;
    IF FOUND THEN
        PERFORM threadline.touch(_tenant, _turn);
        RETURN NEXT leased;
    END IF;
END $$;

CREATE FUNCTION threadline.stop_asked(_tenant text, _owner text, _role text, _turn text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
BEGIN
    RETURN (SELECT t.stop_asked FROM threadline.turns t WHERE t.tenant_id = _tenant AND t.id = _turn);
END $$;

-- The row under this id, whoever enqueued it first.
CREATE FUNCTION threadline.enqueue(
    _tenant text, _owner text, _role text, _now_us bigint, _id text, _holder text, _turn text, _platform text,
    _recipient text, _payload text
) RETURNS SETOF threadline.outbox LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    now constant timestamptz := threadline.moment(_now_us);
BEGIN
    PERFORM threadline.introduce(_tenant, _holder, _now_us);
    RETURN QUERY INSERT INTO threadline.outbox AS o (tenant_id, id, owner_id, turn_id, platform, recipient, payload,
        status, next_attempt_at, created_at)
    VALUES (_tenant, _id, _holder, _turn, _platform, _recipient, _payload, 'waiting', now, now)
    ON CONFLICT DO NOTHING RETURNING o.*;
    IF NOT FOUND THEN
        RETURN QUERY SELECT * FROM threadline.outbox o WHERE o.tenant_id = _tenant AND o.id = _id;
    END IF;
END $$;

CREATE FUNCTION threadline.claim_outbox(
    _tenant text, _owner text, _role text, _worker text, _until timestamptz, _now timestamptz, _limit integer,
    _abandoned text
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
    _error text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
BEGIN
    UPDATE threadline.outbox o SET status = _status, attempts = o.attempts + 1,
        next_attempt_at = coalesce(_next, o.next_attempt_at), last_error = _error,
        sent_at = CASE WHEN _status = 'sent' THEN _now END, claimed_by = NULL, claimed_until = NULL
    WHERE o.tenant_id = _tenant AND o.id = _id AND o.status = 'claimed' AND o.claimed_by = _worker;
    RETURN FOUND;
END $$;
