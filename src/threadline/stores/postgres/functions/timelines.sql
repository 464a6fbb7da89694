-- The last seq of a timeline's history, -1 if it is empty; null if the timeline is not one of the thread's.
CREATE FUNCTION threadline.last_seq_of(_tenant text, _thread text, _timeline text) RETURNS integer LANGUAGE plpgsql AS $$
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

CREATE FUNCTION threadline.list_timelines(_tenant text, _thread text) RETURNS TABLE (
    id text, thread_id text, parent_id text, parent_seq integer, message_count integer, created_at timestamptz
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    FOR id, thread_id, parent_id, parent_seq, created_at IN
        SELECT l.id, l.thread_id, l.parent_id, l.parent_seq, l.created_at FROM threadline.timelines l
        WHERE l.tenant_id = _tenant AND l.thread_id = _thread ORDER BY l.created_at, l.id
    LOOP
        message_count := threadline.last_seq_of(_tenant, _thread, id) + 1;
        RETURN NEXT;
    END LOOP;
END $$;

-- Adds a timeline that forks from _parent at _seq. _ids and _tops are the parent's ancestors, nearest first, each with its
-- last seq; a fork inside an ancestor's range descends from that ancestor. A caller that forks from another thread's
-- timeline has locked it, so that a purge cannot remove what the new one shows; a timeline of the same thread is purged
-- only with the thread, whose row the caller has changed. Returns a value so that the call can be an assignment.
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
        threadline.from_us(_now_us));
    RETURN true;
END $$;

-- Makes another timeline the thread's present one. What search has not indexed of the old one goes to its backlog. A
-- serialization failure if another transaction changed the thread since _thread was read: the caller retries.
CREATE FUNCTION threadline.switch_to(
    _now_us bigint, _thread threadline.threads, _timeline text, _message_count integer
) RETURNS threadline.threads LANGUAGE plpgsql AS $$
DECLARE
    changed threadline.threads;
BEGIN
    UPDATE threadline.threads t
    SET timeline_id = _timeline, message_count = _message_count, indexed_count = _message_count,
        updated_at = threadline.from_us(_now_us)
    WHERE t.tenant_id = _thread.tenant_id AND t.id = _thread.id AND t.deleted_at IS NULL
        AND t.timeline_id = _thread.timeline_id AND t.message_count = _thread.message_count
    RETURNING * INTO changed;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'thread % was changed by another transaction', _thread.id USING ERRCODE = 'serialization_failure';
    END IF;
    IF _thread.indexed_count < _thread.message_count THEN
        INSERT INTO threadline.search_backlog (tenant_id, owner_id, timeline_id, first_seq, last_seq)
        VALUES (_thread.tenant_id, _thread.owner_id, _thread.timeline_id, _thread.indexed_count,
            _thread.message_count - 1)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN changed;
END $$;

-- Continues the thread on a new timeline that forks at that point.
CREATE FUNCTION threadline.fork_thread(
    _now_us bigint, _thread threadline.threads, _timeline text, _parent text, _seq integer,
    _ids text[], _tops integer[]
) RETURNS threadline.threads LANGUAGE plpgsql AS $$
DECLARE
    changed constant threadline.threads := threadline.switch_to(_now_us, _thread, _timeline, _seq + 1);
    added constant boolean := threadline.add_timeline(
        _thread.tenant_id, _now_us, _timeline, _thread.owner_id, _thread.id, _parent, _seq, _ids, _tops
    );
BEGIN
    RETURN changed;
END $$;

-- Whether the caller saw the thread's end where it is.
CREATE FUNCTION threadline.is_expected_head(
    _thread threadline.threads, _expected_count integer, _expected_timeline text
) RETURNS boolean LANGUAGE sql IMMUTABLE
    RETURN coalesce((_thread).message_count = _expected_count, true)
        AND coalesce((_thread).timeline_id = _expected_timeline, true);

-- problem: the 'thread' or the 'timeline' does not exist, its history has no such 'seq', or its 'head' is not where it
-- is expected. A thread that another transaction moves after this check is a serialization failure in switch_to.
CREATE FUNCTION threadline.move_thread(
    _tenant text, _owner text, _role text, _now_us bigint, _thread text, _new text, _seq integer, _timeline text,
    _expected_count integer DEFAULT NULL, _expected_timeline text DEFAULT NULL,
    OUT problem text, OUT result threadline.threads
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    parent record;
    top integer;
BEGIN
    result := threadline.find_live_thread(_tenant, _thread);
    IF result.id IS NULL THEN
        problem := 'thread';
        RETURN;
    END IF;
    IF NOT threadline.is_expected_head(result, _expected_count, _expected_timeline) THEN
        problem := 'head';
        RETURN;
    END IF;
    IF _timeline IS NULL THEN
        top := result.message_count - 1;
    ELSE
        top := threadline.last_seq_of(_tenant, _thread, _timeline);
    END IF;
    problem := CASE WHEN top IS NULL THEN 'timeline' WHEN _seq < -1 OR _seq > top THEN 'seq' END;
    IF problem IS NULL THEN
        SELECT l.id, l.ancestors, l.ancestor_seqs INTO parent FROM threadline.timelines l
        WHERE l.tenant_id = _tenant AND l.id = coalesce(_timeline, result.timeline_id);
        result := threadline.fork_thread(_now_us, result, _new, parent.id, _seq, parent.ancestors, parent.ancestor_seqs);
    END IF;
END $$;

-- Forks before the last user message. problem: the 'thread' does not exist, or has no 'question', or its 'head' is not
-- where it is expected.
CREATE FUNCTION threadline.undo_turn(
    _tenant text, _owner text, _role text, _now_us bigint, _thread text, _new text,
    _expected_count integer DEFAULT NULL, _expected_timeline text DEFAULT NULL,
    OUT problem text, OUT result threadline.threads
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    present record;
    question integer;
BEGIN
    -- The question is mostly in one of the nearest ancestors. If there are 16 of them, the range of the last one is not
    -- known here, and find_turn_start looks through all ancestors.
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
    INTO present
    FROM threadline.threads t JOIN threadline.timelines l ON l.tenant_id = _tenant AND l.id = t.timeline_id
    WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL;
    IF NOT FOUND THEN
        problem := 'thread';
        RETURN;
    END IF;
    IF NOT threadline.is_expected_head(present.thread, _expected_count, _expected_timeline) THEN
        problem := 'head';
        result := present.thread;
        RETURN;
    END IF;
    question := present.question;
    IF question IS NULL THEN
        SELECT s.first INTO question FROM threadline.find_turn_start(_tenant, present.id, present.top, 1) s;
    END IF;
    IF question IS NULL THEN
        problem := 'question';
    ELSE
        result := threadline.fork_thread(_now_us, present.thread, _new, present.id, question - 1, present.ancestors,
            present.ancestor_seqs);
    END IF;
END $$;

-- problem: the 'thread' or the 'timeline' does not exist, or the 'head' is not where it is expected.
CREATE FUNCTION threadline.switch_timeline(
    _tenant text, _owner text, _role text, _now_us bigint, _thread text, _timeline text,
    _expected_count integer DEFAULT NULL, _expected_timeline text DEFAULT NULL,
    OUT problem text, OUT result threadline.threads
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    top integer;
BEGIN
    result := threadline.find_live_thread(_tenant, _thread);
    top := threadline.last_seq_of(_tenant, _thread, _timeline);
    problem := CASE
        WHEN result.id IS NULL THEN 'thread'
        WHEN NOT threadline.is_expected_head(result, _expected_count, _expected_timeline) THEN 'head'
        WHEN top IS NULL THEN 'timeline'
    END;
    IF problem IS NULL AND _timeline <> result.timeline_id THEN
        result := threadline.switch_to(_now_us, result, _timeline, top + 1);
    END IF;
END $$;

-- Locks the thread's row, so that a purge of the thread also removes this point. problem: the 'thread' does not exist, or
-- its history has no such 'seq'.
CREATE FUNCTION threadline.save_point(
    _tenant text, _owner text, _role text, _now_us bigint, _thread text, _name text, _at integer,
    OUT problem text, OUT result threadline.saved_points
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    source record;
BEGIN
    SELECT t.owner_id, t.timeline_id, t.message_count INTO source FROM threadline.threads t
    WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL FOR KEY SHARE;
    problem := CASE WHEN NOT FOUND THEN 'thread' WHEN _at < -1 OR _at >= source.message_count THEN 'seq' END;
    IF problem IS NULL THEN
        INSERT INTO threadline.saved_points (tenant_id, owner_id, name, thread_id, timeline_id, seq, created_at)
        VALUES (_tenant, source.owner_id, _name, _thread, source.timeline_id,
            coalesce(_at, source.message_count - 1), threadline.from_us(_now_us))
        ON CONFLICT (tenant_id, owner_id, name) DO UPDATE
        SET thread_id = excluded.thread_id, timeline_id = excluded.timeline_id, seq = excluded.seq,
            created_at = excluded.created_at
        RETURNING * INTO result;
    END IF;
END $$;

-- problem: the 'thread' or the 'name' does not exist, or the 'head' is not where it is expected. The lock on the timeline keeps a purge from removing it.
CREATE FUNCTION threadline.load_point(
    _tenant text, _owner text, _role text, _now_us bigint, _thread text, _new text, _name text,
    _expected_count integer DEFAULT NULL, _expected_timeline text DEFAULT NULL,
    OUT problem text, OUT result threadline.threads
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    saved record;
BEGIN
    SELECT t AS thread, l.id, s.seq, l.ancestors, l.ancestor_seqs INTO saved
    FROM threadline.threads t
    JOIN threadline.saved_points s ON s.tenant_id = _tenant AND s.owner_id = t.owner_id AND s.name = _name
    JOIN threadline.timelines l ON l.tenant_id = _tenant AND l.id = s.timeline_id
    WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL
    FOR KEY SHARE OF l;
    IF FOUND AND NOT threadline.is_expected_head(saved.thread, _expected_count, _expected_timeline) THEN
        problem := 'head';
        result := saved.thread;
    ELSIF FOUND THEN
        result := threadline.fork_thread(_now_us, saved.thread, _new, saved.id, saved.seq, saved.ancestors,
            saved.ancestor_seqs);
    ELSE
        result := threadline.find_live_thread(_tenant, _thread);
        problem := CASE WHEN result.id IS NULL THEN 'thread' ELSE 'name' END;
    END IF;
END $$;
