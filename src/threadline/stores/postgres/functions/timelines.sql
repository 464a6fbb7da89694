-- The last seq of a timeline's history; null if the thread never stood on it.
CREATE FUNCTION threadline.top_of(_tenant text, _thread text, _timeline text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    top integer;
BEGIN
    SELECT coalesce(l.nearest_seqs[1], -1) INTO top FROM threadline.timelines l
    WHERE l.tenant_id = _tenant AND l.id = _timeline AND l.thread_id = _thread;
    IF FOUND THEN
        SELECT coalesce(max(m.seq), top) INTO top FROM threadline.messages m
        WHERE m.tenant_id = _tenant AND m.timeline_id = _timeline;
    END IF;
    RETURN top;
END $$;

-- A timeline that forks from another at a seq; ids and tops are the ancestors of that other one. A fork inside an
-- ancestor's range hangs on that ancestor. Whoever forks from a timeline of another thread has locked it, so that no purge
-- removes meanwhile what the new one will show; one of the same thread goes with the thread, whose row they changed.
CREATE FUNCTION threadline.add_timeline(
    _tenant text, _now_us bigint, _id text, _owner text, _thread text, _parent text, _seq integer,
    _ids text[], _tops integer[]
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    covering integer;
BEGIN
    IF _seq > coalesce(_tops[1], -1) THEN
        _ids := _parent || _ids;
        _tops := _seq || _tops;
    ELSIF _parent IS NULL OR _seq < 0 THEN
        _ids := '{}';
        _tops := '{}';
    ELSE
        SELECT count(*) INTO covering FROM unnest(_tops) top WHERE top >= _seq;
        _ids := _ids[covering:];
        _tops := _seq || _tops[covering + 1:];
    END IF;
    INSERT INTO threadline.timelines
        (tenant_id, id, owner_id, thread_id, parent_id, parent_seq, ancestors, ancestor_seqs, nearest, nearest_seqs,
        created_at)
    VALUES (_tenant, _id, _owner, _thread, _parent, _seq, _ids, _tops, _ids[1:16], _tops[1:16],
        threadline.moment(_now_us));
    RETURN true;
END $$;

-- The thread stands on another timeline. Search has read all of it, or will find the rest in its backlog. If somebody
-- else changed the thread since it was read, everything is done again.
CREATE FUNCTION threadline.stand(
    _now_us bigint, _thread threadline.threads, _timeline text, _message_count integer
) RETURNS threadline.threads LANGUAGE plpgsql AS $$
DECLARE
    standing threadline.threads;
BEGIN
    UPDATE threadline.threads t
    SET timeline_id = _timeline, message_count = _message_count, indexed_count = _message_count,
        updated_at = threadline.moment(_now_us)
    WHERE t.tenant_id = _thread.tenant_id AND t.id = _thread.id AND t.deleted_at IS NULL
        AND t.timeline_id = _thread.timeline_id AND t.message_count = _thread.message_count
    RETURNING * INTO standing;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'thread % changed meanwhile', _thread.id USING ERRCODE = 'serialization_failure';
    END IF;
    IF _thread.indexed_count < _thread.message_count THEN
        INSERT INTO threadline.search_backlog (tenant_id, owner_id, timeline_id, first_seq, last_seq)
        VALUES (_thread.tenant_id, _thread.owner_id, _thread.timeline_id, _thread.indexed_count,
            _thread.message_count - 1)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN standing;
END $$;

-- The thread goes on from that point, on a new timeline.
CREATE FUNCTION threadline.go_on(
    _now_us bigint, _thread threadline.threads, _timeline text, _parent text, _seq integer,
    _ids text[], _tops integer[]
) RETURNS threadline.threads LANGUAGE plpgsql AS $$
DECLARE
    standing constant threadline.threads := threadline.stand(_now_us, _thread, _timeline, _seq + 1);
    added constant boolean := threadline.add_timeline(
        _thread.tenant_id, _now_us, _timeline, _thread.owner_id, _thread.id, _parent, _seq, _ids, _tops
    );
BEGIN
    RETURN standing;
END $$;

-- problem: 'thread' or 'timeline' is not here, or there is no such 'seq'.
CREATE FUNCTION threadline.move_thread(
    _tenant text, _owner text, _role text, _now_us bigint, _thread text, _new text, _seq integer, _timeline text,
    OUT problem text, OUT result threadline.threads
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    parent record;
    top integer;
BEGIN
    result := threadline.living_thread(_tenant, _thread);
    IF result.id IS NULL THEN
        problem := 'thread';
        RETURN;
    END IF;
    IF _timeline IS NULL THEN
        top := result.message_count - 1;
    ELSE
        top := threadline.top_of(_tenant, _thread, _timeline);
    END IF;
    problem := CASE WHEN top IS NULL THEN 'timeline' WHEN _seq < -1 OR _seq > top THEN 'seq' END;
    IF problem IS NULL THEN
        SELECT l.id, l.ancestors, l.ancestor_seqs INTO parent FROM threadline.timelines l
        WHERE l.tenant_id = _tenant AND l.id = coalesce(_timeline, result.timeline_id);
        result := threadline.go_on(_now_us, result, _new, parent.id, _seq, parent.ancestors, parent.ancestor_seqs);
    END IF;
END $$;

-- problem: 'thread' is not here, or it has no 'question' to go back before.
CREATE FUNCTION threadline.undo_turn(
    _tenant text, _owner text, _role text, _now_us bigint, _thread text, _new text,
    OUT problem text, OUT result threadline.threads
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    standing record;
    question integer;
BEGIN
    -- Mostly one of the nearest ancestors holds the question. Where the last of 16 begins is not said here, so that one is
    -- left to the search through all of them.
    SELECT t AS thread, l.id, l.ancestors, l.ancestor_seqs, t.message_count - 1 AS top, (
        SELECT m.seq FROM unnest(
            l.id || l.nearest,
            l.nearest_seqs || CASE WHEN cardinality(l.nearest_seqs) < 16 THEN -1 END,
            (t.message_count - 1) || l.nearest_seqs
        ) AS r (line, low, high)
        CROSS JOIN LATERAL (
            SELECT m.seq FROM threadline.messages m
            WHERE m.tenant_id = _tenant AND m.timeline_id = r.line AND m.seq > r.low AND m.seq <= r.high
                AND m.role = 'u'
            ORDER BY m.seq DESC LIMIT 1
        ) m
        LIMIT 1
    ) AS question
    INTO standing
    FROM threadline.threads t JOIN threadline.timelines l ON l.tenant_id = _tenant AND l.id = t.timeline_id
    WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL;
    IF NOT FOUND THEN
        problem := 'thread';
        RETURN;
    END IF;
    question := standing.question;
    IF question IS NULL THEN
        SELECT s.first INTO question FROM threadline.start_of_turns(_tenant, standing.id, standing.top, 1) s;
    END IF;
    IF question IS NULL THEN
        problem := 'question';
    ELSE
        result := threadline.go_on(_now_us, standing.thread, _new, standing.id, question - 1, standing.ancestors,
            standing.ancestor_seqs);
    END IF;
END $$;

-- problem: 'thread' or 'timeline' is not here.
CREATE FUNCTION threadline.switch_timeline(
    _tenant text, _owner text, _role text, _now_us bigint, _thread text, _timeline text,
    OUT problem text, OUT result threadline.threads
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    top integer;
BEGIN
    result := threadline.living_thread(_tenant, _thread);
    top := threadline.top_of(_tenant, _thread, _timeline);
    problem := CASE WHEN result.id IS NULL THEN 'thread' WHEN top IS NULL THEN 'timeline' END;
    IF problem IS NULL AND _timeline <> result.timeline_id THEN
        result := threadline.stand(_now_us, result, _timeline, top + 1);
    END IF;
END $$;

-- The thread's row is locked, so that no purge passes by the point that is saved. problem: 'thread' is not here, or there
-- is no such 'seq'.
CREATE FUNCTION threadline.save_point(
    _tenant text, _owner text, _role text, _now_us bigint, _thread text, _name text, _at integer,
    OUT problem text, OUT result threadline.saved_points
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    source record;
BEGIN
    SELECT t.owner_id, t.timeline_id, t.message_count INTO source FROM threadline.threads t
    WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL FOR KEY SHARE;
    problem := CASE WHEN NOT FOUND THEN 'thread' WHEN _at < -1 OR _at >= source.message_count THEN 'seq' END;
    IF problem IS NULL THEN
        INSERT INTO threadline.saved_points (tenant_id, owner_id, name, thread_id, timeline_id, seq, created_at)
        VALUES (_tenant, source.owner_id, _name, _thread, source.timeline_id,
            coalesce(_at, source.message_count - 1), threadline.moment(_now_us))
        ON CONFLICT (tenant_id, owner_id, name) DO UPDATE
        SET thread_id = excluded.thread_id, timeline_id = excluded.timeline_id, seq = excluded.seq,
            created_at = excluded.created_at
        RETURNING * INTO result;
    END IF;
END $$;

-- problem: 'thread' or 'name' is not here.
CREATE FUNCTION threadline.load_point(
    _tenant text, _owner text, _role text, _now_us bigint, _thread text, _new text, _name text,
    OUT problem text, OUT result threadline.threads
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    saved record;
BEGIN
    SELECT t AS thread, l.id, s.seq, l.ancestors, l.ancestor_seqs INTO saved
    FROM threadline.threads t
    JOIN threadline.saved_points s ON s.tenant_id = _tenant AND s.owner_id = t.owner_id AND s.name = _name
    JOIN threadline.timelines l ON l.tenant_id = _tenant AND l.id = s.timeline_id
    WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL
    FOR KEY SHARE OF l;
    IF FOUND THEN
        result := threadline.go_on(_now_us, saved.thread, _new, saved.id, saved.seq, saved.ancestors,
            saved.ancestor_seqs);
    ELSE
        result := threadline.living_thread(_tenant, _thread);
        problem := CASE WHEN result.id IS NULL THEN 'thread' ELSE 'name' END;
    END IF;
END $$;
