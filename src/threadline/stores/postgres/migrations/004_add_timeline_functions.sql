-- oldest compatible: 2
--
-- New threads and new timelines: each a row or two, whatever the length of the history.

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

-- A timeline that forks from another at a seq. A fork inside an ancestor's range hangs on that ancestor. A timeline of
-- another thread is locked, so that no purge removes meanwhile what the new one will show; one of the same thread goes
-- with the thread, whose row the caller changes.
CREATE FUNCTION threadline.add_timeline(
    _tenant text, _now_us bigint, _id text, _owner text, _thread text, _parent text, _seq integer, _is_foreign boolean
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    ids text[] := '{}';
    tops integer[] := '{}';
    covering integer;
BEGIN
    IF _is_foreign THEN
        SELECT l.ancestors, l.ancestor_seqs INTO ids, tops FROM threadline.timelines l
        WHERE l.tenant_id = _tenant AND l.id = _parent FOR KEY SHARE;
    ELSIF _parent IS NOT NULL THEN
        SELECT l.ancestors, l.ancestor_seqs INTO ids, tops FROM threadline.timelines l
        WHERE l.tenant_id = _tenant AND l.id = _parent;
    END IF;
    IF _parent IS NULL OR _seq < 0 THEN
        ids := '{}';
        tops := '{}';
    ELSIF _seq > coalesce(tops[1], -1) THEN
        ids := _parent || ids;
        tops := _seq || tops;
    ELSE
        SELECT count(*) INTO covering FROM unnest(tops) top WHERE top >= _seq;
        ids := ids[covering:];
        tops := _seq || tops[covering + 1:];
    END IF;
    INSERT INTO threadline.timelines
        (tenant_id, id, owner_id, thread_id, parent_id, parent_seq, ancestors, ancestor_seqs, created_at)
    VALUES (_tenant, _id, _owner, _thread, _parent, _seq, ids, tops, threadline.moment(_now_us));
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
    _now_us bigint, _thread threadline.threads, _timeline text, _parent text, _seq integer, _is_foreign boolean
) RETURNS threadline.threads LANGUAGE plpgsql AS $$
DECLARE
    standing constant threadline.threads := threadline.stand(_now_us, _thread, _timeline, _seq + 1);
    added constant boolean := threadline.add_timeline(
        _thread.tenant_id, _now_us, _timeline, _thread.owner_id, _thread.id, _parent, _seq, _is_foreign
    );
BEGIN
    RETURN standing;
END $$;

-- A new thread; with a source, a branch of it. problem: 'source' is not here, 'seq' is past its head, or the 'thread'
-- id or the 'state_key' is taken.
CREATE FUNCTION threadline.create_thread(
    _tenant text, _owner text, _role text, _now_us bigint,
    _id text, _state_key text, _timeline text, _title text, _title_by_person boolean, _agent text, _model text,
    _system_prompt text, _working_dir text, _metadata bytea, _source text, _at integer,
    OUT problem text, OUT result threadline.threads
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    source threadline.threads;
    holder text := _owner;
    added boolean;
BEGIN
    IF _source IS NULL THEN
        PERFORM threadline.introduce(_tenant, _owner, _now_us);
    ELSE
        source := threadline.living_thread(_tenant, _source);
        problem := CASE WHEN source.id IS NULL THEN 'source' WHEN _at < -1 OR _at >= source.message_count THEN 'seq' END;
        holder := source.owner_id;
    END IF;
    IF problem IS NOT NULL THEN
        RETURN;
    END IF;
    _at := coalesce(_at, source.message_count - 1, -1);
    INSERT INTO threadline.threads (
        tenant_id, id, owner_id, state_key, timeline_id, title, title_by_person, agent_id, model, system_prompt,
        working_dir, metadata, message_count, indexed_count, created_at, updated_at
    ) VALUES (
        _tenant, _id, holder, _state_key, _timeline, _title, _title_by_person, coalesce(_agent, source.agent_id),
        coalesce(_model, source.model), coalesce(_system_prompt, source.system_prompt),
        coalesce(_working_dir, source.working_dir), _metadata, _at + 1, _at + 1,
        threadline.moment(_now_us), threadline.moment(_now_us)
    ) ON CONFLICT DO NOTHING RETURNING * INTO result;
    IF NOT FOUND THEN
        SELECT CASE WHEN count(*) > 0 THEN 'state_key' ELSE 'thread' END INTO problem FROM threadline.threads t
        WHERE t.tenant_id = _tenant AND t.owner_id = holder AND t.state_key = _state_key AND t.deleted_at IS NULL;
        RETURN;
    END IF;
    added := threadline.add_timeline(
        _tenant, _now_us, _timeline, holder, _id, source.timeline_id, _at, _source IS NOT NULL
    );
END $$;

CREATE FUNCTION threadline.living_thread(_tenant text, _thread text) RETURNS threadline.threads LANGUAGE plpgsql AS $$
DECLARE
    result threadline.threads;
BEGIN
    SELECT * INTO result FROM threadline.threads t
    WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL;
    RETURN result;
END $$;

-- problem: 'thread' or 'timeline' is not here, or there is no such 'seq'.
CREATE FUNCTION threadline.move_thread(
    _tenant text, _owner text, _role text, _now_us bigint, _thread text, _new text, _seq integer, _timeline text,
    OUT problem text, OUT result threadline.threads
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
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
        result := threadline.go_on(_now_us, result, _new, coalesce(_timeline, result.timeline_id), _seq, false);
    END IF;
END $$;

-- problem: 'thread' is not here, or it has no 'question' to go back before.
CREATE FUNCTION threadline.undo_turn(
    _tenant text, _owner text, _role text, _now_us bigint, _thread text, _new text,
    OUT problem text, OUT result threadline.threads
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    question integer;
BEGIN
    result := threadline.living_thread(_tenant, _thread);
    IF result.id IS NULL THEN
        problem := 'thread';
        RETURN;
    END IF;
    -- Mostly one of the nearest ancestors holds it. Where the last of 16 begins is not said here, so that one is left to
    -- the search through all of them.
    SELECT m.seq INTO question FROM threadline.timelines l
    CROSS JOIN LATERAL unnest(
        l.id || l.nearest,
        l.nearest_seqs || CASE WHEN cardinality(l.nearest_seqs) < 16 THEN -1 END,
        (result.message_count - 1) || l.nearest_seqs
    ) AS r (line, low, high)
    CROSS JOIN LATERAL (
        SELECT m.seq FROM threadline.messages m
        WHERE m.tenant_id = _tenant AND m.timeline_id = r.line AND m.seq > r.low AND m.seq <= r.high AND m.role = 'u'
        ORDER BY m.seq DESC LIMIT 1
    ) m
    WHERE l.tenant_id = _tenant AND l.id = result.timeline_id LIMIT 1;
    IF question IS NULL THEN
        SELECT s.first INTO question
        FROM threadline.start_of_turns(_tenant, result.timeline_id, result.message_count - 1, 1) s;
    END IF;
    IF question IS NULL THEN
        problem := 'question';
    ELSE
        result := threadline.go_on(_now_us, result, _new, result.timeline_id, question - 1, false);
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

-- problem: 'thread' is not here, or there is no such 'seq'.
CREATE FUNCTION threadline.save_point(
    _tenant text, _owner text, _role text, _now_us bigint, _thread text, _name text, _at integer,
    OUT problem text, OUT result threadline.saved_points
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    source threadline.threads;
BEGIN
    source := threadline.living_thread(_tenant, _thread);
    problem := CASE WHEN source.id IS NULL THEN 'thread' WHEN _at < -1 OR _at >= source.message_count THEN 'seq' END;
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
    saved threadline.saved_points;
BEGIN
    result := threadline.living_thread(_tenant, _thread);
    SELECT * INTO saved FROM threadline.saved_points s
    WHERE s.tenant_id = _tenant AND s.owner_id = result.owner_id AND s.name = _name;
    problem := CASE WHEN result.id IS NULL THEN 'thread' WHEN saved.name IS NULL THEN 'name' END;
    IF problem IS NULL THEN
        result := threadline.go_on(_now_us, result, _new, saved.timeline_id, saved.seq, true);
    END IF;
END $$;
