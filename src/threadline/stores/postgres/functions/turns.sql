-- Tells listeners that something about the turn may have changed. Ids only: anyone on the server may listen.
CREATE FUNCTION threadline.notify(_tenant text, _turn text) RETURNS void LANGUAGE sql
    RETURN pg_notify('threadline', _tenant || ' ' || _turn);

-- False if the fence is old. The row lock keeps the fence from changing until the commit.
CREATE FUNCTION threadline.put_chunks(
    _tenant text, _owner text, _role text, _turn text, _fence integer, _numbers integer[], _chunks bytea[]
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    holder text;
BEGIN
    SELECT t.owner_id INTO holder FROM threadline.turns t
    WHERE t.tenant_id = _tenant AND t.id = _turn AND t.fence = _fence FOR SHARE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO threadline.turn_chunks (tenant_id, turn_id, n, owner_id, chunk)
    SELECT _tenant, _turn, g.n, holder, g.chunk FROM unnest(_numbers, _chunks) AS g (n, chunk)
    ON CONFLICT DO NOTHING;
    PERFORM threadline.notify(_tenant, _turn);
    RETURN true;
END $$;

CREATE FUNCTION threadline.read_chunks(
    _tenant text, _owner text, _role text, _turn text, _after integer, _limit integer
) RETURNS TABLE (n integer, chunk bytea) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
BEGIN
    RETURN QUERY SELECT c.n, c.chunk FROM threadline.turn_chunks c
        WHERE c.tenant_id = _tenant AND c.turn_id = _turn AND c.n > _after ORDER BY c.n LIMIT _limit;
END $$;

CREATE FUNCTION threadline.lease_time(_tenant text, _owner text, _role text) RETURNS timestamptz LANGUAGE sql STABLE
    RETURN now();

-- No row for a turn that cannot be leased now: it has ended, another worker has it, or an earlier turn of its thread is
-- active. The conditions are checked again under the row's lock.
CREATE FUNCTION threadline.lease_turn(
    _tenant text, _owner text, _role text, _now_us bigint, _turn text, _worker text, _seconds double precision
) RETURNS SETOF threadline.turns LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    at constant timestamptz := threadline.from_us(threadline.shared_us(_now_us));
    leased threadline.turns;
BEGIN
    UPDATE threadline.turns t SET status = 'running', fence = t.fence + 1, lease_owner = _worker,
        lease_until = at + make_interval(secs => _seconds)
    WHERE t.tenant_id = _tenant AND t.id = _turn
        AND (t.status = 'accepted' OR (t.status = 'running' AND t.lease_until <= at))
        AND NOT EXISTS (
            SELECT FROM threadline.turns e
            WHERE e.tenant_id = _tenant AND e.thread_id = t.thread_id AND e.place < t.place
                AND e.status IN ('accepted', 'running')
        )
    RETURNING t.* INTO leased;
    IF FOUND THEN
        PERFORM threadline.notify(_tenant, _turn);
        RETURN NEXT leased;
    END IF;
END $$;

-- Leases turns that were handed over, in order of acceptance; one behind an active turn of its thread is reserved. Those
-- that wait longer than _within seconds are left alone, unless they are of one of the surfaces in _always.
CREATE FUNCTION threadline.claim_turns(
    _tenant text, _owner text, _role text, _now_us bigint, _worker text, _seconds double precision,
    _within double precision, _always text[], _limit integer
) RETURNS SETOF threadline.turns LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    at constant timestamptz := threadline.from_us(threadline.shared_us(_now_us));
    due record;
    claimed threadline.turns;
BEGIN
    FOR due IN
        SELECT t.id, NOT EXISTS (
            SELECT FROM threadline.turns e
            WHERE e.tenant_id = _tenant AND e.thread_id = t.thread_id AND e.place < t.place
                AND e.status IN ('accepted', 'running')
        ) AS is_first
        FROM threadline.turns t
        WHERE t.tenant_id = _tenant AND t.status IN ('accepted', 'running') AND t.lease_owner IS NULL
            AND t.lease_until <= at
            AND (t.surface = ANY (_always) OR t.lease_until > at - make_interval(secs => _within))
        ORDER BY t.place LIMIT _limit FOR UPDATE OF t SKIP LOCKED
    LOOP
        UPDATE threadline.turns t SET status = CASE WHEN due.is_first THEN 'running' ELSE t.status END,
            fence = t.fence + due.is_first::integer, lease_owner = _worker,
            lease_until = at + make_interval(secs => _seconds)
        WHERE t.tenant_id = _tenant AND t.id = due.id AND (due.is_first OR t.status = 'accepted')
        RETURNING t.* INTO claimed;
        IF FOUND THEN
            RETURN NEXT claimed;
        END IF;
    END LOOP;
END $$;

-- Also reserves an accepted turn for the process that waits to run it.
CREATE FUNCTION threadline.renew_lease(
    _tenant text, _owner text, _role text, _now_us bigint, _turn text, _fence integer, _worker text,
    _seconds double precision
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    at constant timestamptz := threadline.from_us(threadline.shared_us(_now_us));
BEGIN
    UPDATE threadline.turns t SET lease_owner = _worker, lease_until = at + make_interval(secs => _seconds)
    WHERE t.tenant_id = _tenant AND t.id = _turn AND t.fence = _fence AND t.status IN ('accepted', 'running');
    RETURN FOUND;
END $$;

CREATE FUNCTION threadline.is_stop_requested(_tenant text, _owner text, _role text, _turn text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
BEGIN
    RETURN (SELECT t.stop_asked FROM threadline.turns t WHERE t.tenant_id = _tenant AND t.id = _turn);
END $$;

-- The summary that covers most of the present history. One row without a text if there is none; no row if there is no
-- thread.
CREATE FUNCTION threadline.find_summary(_tenant text, _owner text, _role text, _thread text)
RETURNS TABLE (
    timeline_id text, seq integer, text text, created_at timestamptz, source text, model text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
BEGIN
    RETURN QUERY SELECT s.timeline_id::text, s.seq, s.text, s.created_at, s.source, s.model
        FROM threadline.threads t
        JOIN threadline.timelines l ON l.tenant_id = _tenant AND l.id = t.timeline_id
        LEFT JOIN LATERAL (
            SELECT found.timeline_id, found.seq, found.text, found.created_at, found.source, found.model
            FROM unnest(l.id || l.ancestors, (t.message_count - 1) || l.ancestor_seqs) AS shown (timeline_id, last)
            JOIN threadline.summaries found
                ON found.tenant_id = _tenant AND found.timeline_id = shown.timeline_id AND found.seq <= shown.last
            ORDER BY found.seq DESC LIMIT 1
        ) s ON true
        WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL;
END $$;

CREATE FUNCTION threadline.find_turn(_tenant text, _owner text, _role text, _id text)
RETURNS SETOF threadline.turns LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
BEGIN
    RETURN QUERY SELECT * FROM threadline.turns r WHERE r.tenant_id = _tenant AND r.id = _id;
END $$;

-- In order of acceptance.
CREATE FUNCTION threadline.active_turns(_tenant text, _owner text, _role text, _thread text)
RETURNS SETOF threadline.turns LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
BEGIN
    RETURN QUERY SELECT * FROM threadline.turns r
        WHERE r.tenant_id = _tenant AND r.thread_id = _thread AND r.status IN ('accepted', 'running') ORDER BY r.place;
END $$;

-- Hands a turn over to other workers. Without a row the fence is old or the turn has ended.
CREATE FUNCTION threadline.release_lease(_tenant text, _turn text, _fence integer, _given timestamptz)
RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    at constant timestamptz := coalesce(_given, now());
    released text;
BEGIN
    FOR released IN
        UPDATE threadline.turns t SET lease_owner = NULL, lease_until = at
        WHERE t.tenant_id = _tenant AND t.id = _turn AND t.fence = _fence AND t.status IN ('accepted', 'running')
        RETURNING t.id
    LOOP
        PERFORM threadline.notify(_tenant, released);
        RETURN NEXT released;
    END LOOP;
END $$;

-- Ends the leases of a worker, or that of one turn, now. The ids of their turns.
CREATE FUNCTION threadline.expire_leases(_tenant text, _worker text, _turn text, _given timestamptz)
RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    at constant timestamptz := coalesce(_given, now());
    expired text;
BEGIN
    FOR expired IN
        UPDATE threadline.turns t SET lease_until = at
        WHERE t.tenant_id = _tenant AND t.lease_owner = _worker AND (_turn IS NULL OR t.id = _turn)
            AND t.status IN ('accepted', 'running') AND t.lease_until > at
        RETURNING t.id
    LOOP
        PERFORM threadline.notify(_tenant, expired);
        RETURN NEXT expired;
    END LOOP;
END $$;

-- Asks a turn to stop; one that does not run yet ends at once. Its thread; no row if it has ended.
CREATE FUNCTION threadline.request_stop(_tenant text, _turn text, _given timestamptz)
RETURNS TABLE (thread_id text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    at constant timestamptz := coalesce(_given, now());
BEGIN
    UPDATE threadline.turns t SET stop_asked = true,
        finished_at = CASE WHEN t.status = 'accepted' THEN at END,
        status = CASE WHEN t.status = 'accepted' THEN 'stopped' ELSE t.status END
    WHERE t.tenant_id = _tenant AND t.id = _turn AND t.status IN ('accepted', 'running')
    RETURNING t.thread_id INTO thread_id;
    IF FOUND THEN
        PERFORM threadline.notify(_tenant, _turn);
        RETURN NEXT;
    END IF;
END $$;

-- The same for every active turn of a user.
CREATE FUNCTION threadline.stop_user_turns(_tenant text, _owner text, _given timestamptz)
RETURNS TABLE (thread_id text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    active text;
BEGIN
    FOR active IN
        SELECT t.id FROM threadline.turns t
        WHERE t.tenant_id = _tenant AND t.owner_id = _owner AND t.status IN ('accepted', 'running') ORDER BY t.id
    LOOP
        RETURN QUERY SELECT s.thread_id FROM threadline.request_stop(_tenant, active, _given) s;
    END LOOP;
END $$;

-- Removes the chunks of turns that ended long ago. Their number.
CREATE FUNCTION threadline.drop_chunks(_tenant text, _given timestamptz, _age interval) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    before constant timestamptz := coalesce(_given, now()) - _age;
    removed bigint;
BEGIN
    DELETE FROM threadline.turn_chunks c USING threadline.turns t
    WHERE c.tenant_id = _tenant AND t.tenant_id = _tenant AND t.id = c.turn_id AND t.finished_at < before;
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END $$;

-- False if somebody else compacts the thread. _forced also takes over, or with no seconds ends, a claim.
CREATE FUNCTION threadline.claim_compaction(
    _tenant text, _thread text, _forced boolean, _now_us bigint, _seconds double precision
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    at constant timestamptz := threadline.from_us(threadline.shared_us(_now_us));
BEGIN
    UPDATE threadline.threads t SET compacting_until = at + make_interval(secs => _seconds)
    WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL
        AND (_forced OR t.compacting_until IS NULL OR t.compacting_until <= at);
    RETURN FOUND;
END $$;

-- Adds turns that ended elsewhere, in their order.
CREATE FUNCTION threadline.add_past_turns(
    _tenant text, _thread text, _owner text, _ids text[], _surfaces text[], _agents text[], _statuses text[],
    _errors text[], _usages bytea[], _request_seqs integer[], _reply_seqs integer[], _created timestamptz[],
    _finished timestamptz[], _providers text[], _models text[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO threadline.turns (tenant_id, thread_id, owner_id, id, surface, agent_id, status, error, usage,
        request_seq, reply_seq, created_at, finished_at, provider, model)
    SELECT _tenant, _thread, _owner, g.id, g.surface, g.agent_id, g.status, g.error, g.usage, g.request_seq,
        g.reply_seq, g.created_at, g.finished_at, g.provider, g.model
    FROM unnest(_ids, _surfaces, _agents, _statuses, _errors, _usages, _request_seqs, _reply_seqs, _created, _finished,
        _providers, _models) WITH ORDINALITY
        AS g (id, surface, agent_id, status, error, usage, request_seq, reply_seq, created_at, finished_at, provider,
            model, place)
    ORDER BY g.place
    ON CONFLICT DO NOTHING;
END $$;
