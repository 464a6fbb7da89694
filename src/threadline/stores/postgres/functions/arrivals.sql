-- The common case and nothing else: where anything stands in the way this writes nothing and answers nothing, and the
-- caller goes step by step and learns what it is. One user's works stand in line, as in every transaction of several
-- steps; what is looked up here holds until the end of it. A question that waits for an answer is kept with the place.
CREATE FUNCTION threadline.take_arrival(
    _tenant text, _owner text, _role text, _now_us bigint,
    _platform text, _key text, _fingerprint text, _correlation text, _reply_to text, _place text,
    _turn text, _agent text, _turn_key text, _hash bytea, _home text,
    _message text, _parts bytea, _metadata bytea, _title text, _most integer, _new text, _timeline text
) RETURNS SETOF threadline.turns LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    now constant timestamptz := threadline.moment(_now_us);
    thread text;
    fits boolean;
    begins boolean;
    claimed boolean;
    placed threadline.append_result;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(_tenant || '/' || _owner, 1));
    SELECT b.thread_id, b.owner_id = _owner AND (b.metadata IS NULL OR position('pending'::bytea IN b.metadata) = 0)
    INTO thread, fits FROM threadline.bindings b
    WHERE b.tenant_id = _tenant AND b.surface = _platform AND b.place = _place;
    begins := NOT FOUND;
    IF NOT coalesce(fits, _home IS NOT NULL) OR EXISTS (
        SELECT FROM threadline.turns r
        WHERE r.tenant_id = _tenant AND r.owner_id = _owner AND r.idempotency_key = _turn_key
    ) THEN
        RETURN;
    END IF;
    IF begins THEN
        thread := threadline.begin_place(
            _tenant, _owner, _role, _now_us, _platform, _place, _home, _new, _timeline, _agent
        );
    END IF;
    -- Whether another owner has claimed it is not in sight here: the insert finds out, and does nothing.
    INSERT INTO threadline.inbox (tenant_id, platform, key, owner_id, status, decision, turn_id, fingerprint,
        correlation_id, reply_to, created_at, updated_at)
    VALUES (_tenant, _platform, _key, _owner, 'accepted', 'accepted', _turn, _fingerprint, _correlation, _reply_to, now,
        now) ON CONFLICT DO NOTHING;
    claimed := FOUND;
    IF claimed THEN
        placed := threadline.append(
            _tenant, _owner, _role, _now_us, ROW(
                thread, ARRAY[_message], 'u', ARRAY[_parts],
                CASE WHEN _metadata IS NOT NULL THEN ARRAY[_metadata] END, NULL, NULL, NULL, NULL, _most, _turn, 0,
                _title
            )::threadline.append_args
        );
    END IF;
    IF placed.timeline_id IS NULL THEN
        IF begins THEN
            RAISE EXCEPTION USING ERRCODE = 'TL001', MESSAGE = 'what was made for a new place must go as well';
        ELSIF claimed THEN
            DELETE FROM threadline.inbox i WHERE i.tenant_id = _tenant AND i.platform = _platform AND i.key = _key;
        END IF;
        RETURN;
    END IF;
    -- The append has locked the thread's row, so the place in line is the order in which turns become visible.
    RETURN QUERY INSERT INTO threadline.turns AS r (tenant_id, id, owner_id, thread_id, surface, agent_id, status,
        idempotency_key, request_hash, request_seq, created_at)
    VALUES (_tenant, _turn, _owner, thread, _platform, _agent, 'accepted', _turn_key, _hash,
        placed.first_seq, now)
    RETURNING r.*;
END $$;

-- The thread that a new place is bound to; null if another owner has the place, or somebody took the key just now.
CREATE FUNCTION threadline.begin_place(
    _tenant text, _owner text, _role text, _now_us bigint, _platform text, _place text, _home text, _new text,
    _timeline text, _agent text
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    thread text;
BEGIN
    SELECT t.id INTO thread FROM threadline.threads t
    WHERE t.tenant_id = _tenant AND t.owner_id = _owner AND t.state_key = _home AND t.deleted_at IS NULL;
    IF NOT FOUND THEN
        SELECT (c.result).id INTO thread FROM threadline.create_thread(
            _tenant, _owner, _role, _now_us,
            ROW(_new, _home, _timeline, NULL, false, _agent, NULL, NULL, NULL, NULL)::threadline.thread_args
        ) c WHERE c.problem IS NULL;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    INSERT INTO threadline.bindings (tenant_id, surface, place, owner_id, thread_id, created_at, updated_at)
    VALUES (_tenant, _platform, _place, _owner, thread, threadline.moment(_now_us), threadline.moment(_now_us))
    ON CONFLICT DO NOTHING;
    RETURN CASE WHEN FOUND THEN thread END;
END $$;
