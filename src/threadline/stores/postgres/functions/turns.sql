-- Tells listeners that something about the turn may have changed. Ids only: anyone on the server may listen.
CREATE FUNCTION threadline.touch(_tenant text, _turn text) RETURNS void LANGUAGE sql
    RETURN pg_notify('threadline', _tenant || ' ' || _turn);

-- False if the fence is old. The row's lock keeps it from growing old meanwhile.
CREATE FUNCTION threadline.put_chunks(
    _tenant text, _owner text, _role text, _turn text, _fence integer, _numbers integer[], _chunks bytea[]
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
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
    PERFORM threadline.touch(_tenant, _turn);
    RETURN true;
END $$;

CREATE FUNCTION threadline.read_chunks(
    _tenant text, _owner text, _role text, _turn text, _after integer, _limit integer
) RETURNS TABLE (n integer, chunk bytea) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
BEGIN
    RETURN QUERY SELECT c.n, c.chunk FROM threadline.turn_chunks c
        WHERE c.tenant_id = _tenant AND c.turn_id = _turn AND c.n > _after ORDER BY c.n LIMIT _limit;
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

CREATE FUNCTION threadline.renew_lease(
    _tenant text, _owner text, _role text, _turn text, _fence integer, _until timestamptz
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
BEGIN
    UPDATE threadline.turns t SET lease_until = _until
    WHERE t.tenant_id = _tenant AND t.id = _turn AND t.fence = _fence AND t.status = 'running';
    RETURN FOUND;
END $$;

CREATE FUNCTION threadline.stop_asked(_tenant text, _owner text, _role text, _turn text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
BEGIN
    RETURN (SELECT t.stop_asked FROM threadline.turns t WHERE t.tenant_id = _tenant AND t.id = _turn);
END $$;

-- The request, its turn and the turn's lease. It goes to _thread; or, with a state key, to the living thread under that
-- key, which is made as _thread if there is none. One user's works stand in line, as in every transaction of several
-- steps; what is looked up here holds until the end of it.
CREATE FUNCTION threadline.accept_at_once(
    _tenant text, _owner text, _role text, _now_us bigint,
    _thread text, _state_key text, _timeline text, _title text, _title_by_person boolean, _new_agent text, _model text,
    _system_prompt text, _working_dir text, _thread_metadata bytea,
    _message text, _parts bytea, _metadata bytea, _created_us bigint, _first_title text, _most integer,
    _turn text, _surface text, _agent text, _key text, _hash bytea, _worker text, _until timestamptz
) RETURNS SETOF threadline.threads LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    thread threadline.threads;
    placed threadline.append_result;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(_tenant || '/' || _owner, 1));
    PERFORM FROM threadline.turns r WHERE r.tenant_id = _tenant AND r.owner_id = _owner AND r.idempotency_key = _key;
    IF FOUND THEN
        RETURN;
    END IF;
    IF _state_key IS NULL THEN
        SELECT * INTO thread FROM threadline.threads t
        WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL FOR NO KEY UPDATE;
    ELSE
        SELECT * INTO thread FROM threadline.threads t
        WHERE t.tenant_id = _tenant AND t.owner_id = _owner AND t.state_key = _state_key AND t.deleted_at IS NULL
        FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            SELECT (c.result).* INTO thread FROM threadline.create_thread(
                _tenant, _owner, _role, _now_us, ROW(
                    _thread, _state_key, _timeline, _title, _title_by_person, _new_agent, _model, _system_prompt,
                    _working_dir, _thread_metadata
                )::threadline.thread_args
            ) c WHERE c.problem IS NULL;
        END IF;
    END IF;
    IF thread.id IS NULL OR thread.message_count >= _most THEN
        RETURN;
    END IF;
    PERFORM FROM threadline.turns r
    WHERE r.tenant_id = _tenant AND r.thread_id = thread.id AND r.status IN ('accepted', 'running');
    IF FOUND THEN
        RETURN;
    END IF;
    placed := threadline.append(
        _tenant, _owner, _role, _now_us, ROW(
            thread.id, ARRAY[_message], 'u', ARRAY[_parts], CASE WHEN _metadata IS NOT NULL THEN ARRAY[_metadata] END,
            CASE WHEN _created_us IS NOT NULL THEN ARRAY[_created_us] END, NULL, NULL, NULL, _most, _turn, 0,
            _first_title
        )::threadline.append_args
    );
    INSERT INTO threadline.turns (tenant_id, id, owner_id, thread_id, surface, agent_id, status, idempotency_key,
        request_hash, request_seq, created_at, lease_owner, lease_until, fence)
    VALUES (_tenant, _turn, thread.owner_id, thread.id, _surface, coalesce(_agent, thread.agent_id), 'running', _key,
        _hash, thread.message_count, threadline.moment(_now_us), _worker, _until, 1)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND OR placed.timeline_id IS NULL THEN
        -- An id was here before. What was made above must go as well.
        RAISE EXCEPTION USING ERRCODE = 'TL001', MESSAGE = 'the id of a message or of a turn was here before';
    END IF;
    RETURN QUERY SELECT * FROM threadline.threads t WHERE t.tenant_id = _tenant AND t.id = thread.id;
END $$;

-- The reply, the rest of the stream and the turn's end. The answer is the reply's seq, -1 if there is none to store, or
-- null. The thread's row is locked first, so that the request still stands where it is found.
CREATE FUNCTION threadline.finish_at_once(
    _tenant text, _owner text, _role text, _now_us bigint,
    _thread text, _turn text, _fence integer, _request_seq integer, _numbers integer[], _chunks bytea[],
    _reply text, _parts bytea, _metadata bytea, _most integer, _tokens integer,
    _status text, _error text, _usage bytea, _seen bytea
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    line text;
    holder text;
    placed threadline.append_result;
    seq integer;
BEGIN
    SELECT t.timeline_id INTO line FROM threadline.threads t
    WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL FOR NO KEY UPDATE;
    SELECT r.owner_id INTO holder FROM threadline.turns r
    WHERE r.tenant_id = _tenant AND r.id = _turn AND r.fence = _fence AND r.status = 'running' FOR NO KEY UPDATE;
    PERFORM FROM threadline.messages m
    WHERE m.tenant_id = _tenant AND m.timeline_id = line AND m.seq = _request_seq AND m.turn_id = _turn AND m.role = 'u';
    IF NOT FOUND OR holder IS NULL THEN
        RETURN NULL;
    END IF;
    IF _reply IS NOT NULL THEN
        placed := threadline.append(
            _tenant, _owner, _role, _now_us, ROW(
                _thread, ARRAY[_reply], 'a', ARRAY[_parts],
                CASE WHEN _metadata IS NOT NULL THEN ARRAY[_metadata] END, NULL, NULL, NULL, NULL, _most, _turn, _tokens,
                NULL
            )::threadline.append_args
        );
        IF placed.timeline_id IS NULL THEN
            RETURN NULL;
        END IF;
        seq := placed.first_seq;
    END IF;
    INSERT INTO threadline.turn_chunks (tenant_id, turn_id, n, owner_id, chunk)
    SELECT _tenant, _turn, g.n, holder, g.chunk FROM unnest(_numbers, _chunks) AS g (n, chunk)
    ON CONFLICT DO NOTHING;
    UPDATE threadline.turns r SET status = _status, error = _error, usage = _usage, seen = _seen, reply_seq = seq,
        finished_at = threadline.moment(_now_us)
    WHERE r.tenant_id = _tenant AND r.id = _turn;
    PERFORM threadline.touch(_tenant, _turn);
    RETURN coalesce(seq, -1);
END $$;

-- The one that covers most of the present history. A row without a text says that there is none; no row, no thread.
CREATE FUNCTION threadline.find_summary(_tenant text, _owner text, _role text, _thread text)
RETURNS TABLE (timeline_id text, seq integer, text text, created_at timestamptz) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
BEGIN
    RETURN QUERY SELECT s.timeline_id::text, s.seq, s.text, s.created_at
        FROM threadline.threads t
        JOIN threadline.timelines l ON l.tenant_id = _tenant AND l.id = t.timeline_id
        LEFT JOIN LATERAL (
            SELECT found.timeline_id, found.seq, found.text, found.created_at
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
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
BEGIN
    RETURN QUERY SELECT * FROM threadline.turns r WHERE r.tenant_id = _tenant AND r.id = _id;
END $$;

-- In order of acceptance.
CREATE FUNCTION threadline.active_turns(_tenant text, _owner text, _role text, _thread text)
RETURNS SETOF threadline.turns LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
BEGIN
    RETURN QUERY SELECT * FROM threadline.turns r
        WHERE r.tenant_id = _tenant AND r.thread_id = _thread AND r.status IN ('accepted', 'running') ORDER BY r.place;
END $$;
