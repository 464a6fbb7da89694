-- Writes the messages if the common case holds, and otherwise returns null and writes nothing: append_locked then finds
-- out why. The common case: the key is new, no message id is known, there is room, and nothing was written to the thread
-- since this statement began. The UPDATE checks the last in its condition: after waiting for the row's lock PostgreSQL
-- evaluates it again, with the new count and timeline against those of the snapshot. A key that another transaction
-- inserts at the same moment violates the primary key; the caller retries. _ids_checked skips the look for message ids:
-- append_locked has compared them with this history, and the same ids in another history are no conflict.
CREATE FUNCTION threadline.append(
    _tenant text, _owner text, _role text, _now_us bigint, _new threadline.append_args,
    _ids_checked boolean DEFAULT false
) RETURNS threadline.append_result LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    added constant integer := cardinality(_new.ids);
    result threadline.append_result;
    holder text;
BEGIN
    IF _new.key IS NOT NULL THEN
        PERFORM FROM threadline.append_keys k
        WHERE k.tenant_id = _tenant AND k.thread_id = _new.thread_id AND k.key = _new.key;
        IF FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    UPDATE threadline.threads t
    SET message_count = t.message_count + added, token_count = t.token_count + _new.tokens,
        updated_at = threadline.from_us(_now_us), title = coalesce(t.title, _new.title)
    WHERE t.tenant_id = _tenant AND t.id = _new.thread_id AND t.deleted_at IS NULL
        AND (t.message_count, t.timeline_id) = (
            SELECT seen.message_count, seen.timeline_id FROM threadline.threads seen
            WHERE seen.tenant_id = _tenant AND seen.id = _new.thread_id
        )
        AND t.message_count <= _new.max_count - added
        AND (_new.expected_count IS NULL OR t.message_count = _new.expected_count)
        AND (_ids_checked OR NOT EXISTS (
            SELECT FROM threadline.messages m WHERE m.tenant_id = _tenant AND m.id = ANY (_new.ids)
        ))
    RETURNING t.timeline_id, t.message_count - added, t.token_count, t.title, t.owner_id
    INTO result.timeline_id, result.first_seq, result.token_count, result.title, holder;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO threadline.messages
        (created_us, seq, role, tenant_id, timeline_id, owner_id, id, turn_id, parts, metadata)
    SELECT coalesce(m.created_us, _now_us), result.first_seq + m.n - 1, substr(_new.roles, m.n::integer, 1)::"char",
        _tenant, result.timeline_id, holder, m.id, _new.turn_id, m.parts, m.metadata
    FROM unnest(_new.ids, _new.parts, _new.metadata, _new.created_us)
        WITH ORDINALITY AS m (id, parts, metadata, created_us, n);
    IF _new.key IS NOT NULL THEN
        INSERT INTO threadline.append_keys
            (tenant_id, thread_id, key, owner_id, fingerprint, timeline_id, first_seq, messages, created_at)
        VALUES (_tenant, _new.thread_id, _new.key, holder, _new.fingerprint, result.timeline_id, result.first_seq, added,
            threadline.from_us(_now_us));
    END IF;
    RETURN result;
END $$;

-- Several appends of one tenant in one transaction, each in its own scope; one row per append, in their order. The lock
-- timeout keeps a thread that another transaction has locked from delaying the others: the whole batch fails, and the
-- caller repeats each append alone.
CREATE FUNCTION threadline.append_batch(
    _tenant text, _owners text[], _roles text[], _now_us bigint[], _new threadline.append_args[]
) RETURNS SETOF threadline.append_result LANGUAGE plpgsql AS $$
DECLARE
    lock_timeout constant text := set_config('lock_timeout', '50ms', true);
    result threadline.append_result;
BEGIN
    FOR n IN 1..cardinality(_new) LOOP
        result := threadline.append(_tenant, _owners[n], _roles[n], _now_us[n], _new[n]);
        RETURN NEXT result;
    END LOOP;
END $$;

-- The same with the thread's row locked first, so that `problem` can name what prevents the append: 'thread' is not here,
-- 'key' came with other messages, 'message' ids are in this history, 'count' is not the expected one, 'limit' would be
-- exceeded. 'repeat' means that the same append was made under this key; 'present' that the ids are in this history in
-- this order (the caller compares their content, because bodies may be compressed differently). `thread` is the row after
-- the call; its timeline and count differ from the result's if the append was made before.
CREATE FUNCTION threadline.append_locked(
    _tenant text, _owner text, _role text, _now_us bigint, _new threadline.append_args,
    OUT problem text, OUT timeline_id text, OUT first_seq integer, OUT message_ids text[], OUT thread threadline.threads
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    added constant integer := cardinality(_new.ids);
    earlier threadline.append_keys;
    last_seq integer;
    result threadline.append_result;
BEGIN
    SELECT * INTO thread FROM threadline.threads t
    WHERE t.tenant_id = _tenant AND t.id = _new.thread_id AND t.deleted_at IS NULL FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        problem := 'thread';
        RETURN;
    END IF;
    SELECT * INTO earlier FROM threadline.append_keys k
    WHERE k.tenant_id = _tenant AND k.thread_id = _new.thread_id AND k.key = _new.key;
    IF FOUND THEN
        problem := CASE WHEN earlier.fingerprint = _new.fingerprint THEN 'repeat' ELSE 'key' END;
        timeline_id := earlier.timeline_id;
        first_seq := earlier.first_seq;
        SELECT array_agg(m.id ORDER BY m.seq) INTO message_ids FROM threadline.messages m
        WHERE m.tenant_id = _tenant AND m.timeline_id = earlier.timeline_id
            AND m.seq BETWEEN earlier.first_seq AND earlier.first_seq + earlier.messages - 1;
        RETURN;
    END IF;
    -- Where the given ids are in this history, in the order of the history.
    SELECT min(m.seq), max(m.seq), (array_agg(m.timeline_id ORDER BY m.seq))[1], array_agg(m.id ORDER BY m.seq)
    INTO first_seq, last_seq, timeline_id, message_ids
    FROM threadline.messages m JOIN threadline.timelines l ON l.tenant_id = _tenant AND l.id = thread.timeline_id
    WHERE m.tenant_id = _tenant AND m.id = ANY (_new.ids) AND (
        m.timeline_id = l.id OR m.seq <= l.ancestor_seqs[array_position(l.ancestors, m.timeline_id)]
    );
    IF message_ids IS NOT NULL THEN
        problem := CASE
            WHEN message_ids = _new.ids AND last_seq = first_seq + added - 1 THEN 'present' ELSE 'message'
        END;
        RETURN;
    END IF;
    timeline_id := thread.timeline_id;
    first_seq := thread.message_count;
    problem := CASE
        WHEN _new.expected_count <> thread.message_count THEN 'count'
        WHEN thread.message_count > _new.max_count - added THEN 'limit'
    END;
    IF problem IS NULL THEN
        result := threadline.append(_tenant, _owner, _role, _now_us, _new, _ids_checked => true);
        ASSERT (result.timeline_id, result.first_seq) = (timeline_id, first_seq), 'a locked thread changed';
        thread.message_count := first_seq + added;
        thread.token_count := result.token_count;
        thread.title := result.title;
        thread.updated_at := threadline.from_us(_now_us);
    END IF;
END $$;

-- The same after moving the thread to a new timeline, named _line, that continues after _after; without _after, at the
-- thread's end. A repeat moves nothing: it is known by its key, or because its first message is the one after _after.
-- problem: as above, or the 'timeline' is not the expected one, or there is no such 'seq'.
CREATE FUNCTION threadline.append_after(
    _tenant text, _owner text, _role text, _now_us bigint, _new threadline.append_args,
    _after integer, _line text, _expected_timeline text,
    OUT problem text, OUT timeline_id text, OUT first_seq integer, OUT message_ids text[], OUT thread threadline.threads
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    is_repeat boolean;
    moved record;
    done record;
BEGIN
    SELECT * INTO thread FROM threadline.threads t
    WHERE t.tenant_id = _tenant AND t.id = _new.thread_id AND t.deleted_at IS NULL FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        problem := 'thread';
        RETURN;
    END IF;
    PERFORM FROM threadline.append_keys k
    WHERE k.tenant_id = _tenant AND k.thread_id = _new.thread_id AND k.key = _new.key;
    is_repeat := FOUND;
    IF NOT is_repeat THEN
        PERFORM FROM threadline.messages m
        JOIN threadline.timelines l ON l.tenant_id = _tenant AND l.id = thread.timeline_id
        WHERE m.tenant_id = _tenant AND m.id = _new.ids[1]
            AND m.seq = coalesce(_after + 1, m.seq) AND m.seq < thread.message_count AND (
                m.timeline_id = l.id OR m.seq <= l.ancestor_seqs[array_position(l.ancestors, m.timeline_id)]
            )
        LIMIT 1;
        is_repeat := FOUND;
    END IF;
    IF NOT is_repeat THEN
        first_seq := thread.message_count;
        problem := CASE
            WHEN _new.expected_count <> thread.message_count THEN 'count'
            WHEN _expected_timeline <> thread.timeline_id THEN 'timeline'
        END;
        -- What would prevent the append is looked for before the move, which a returned problem does not undo.
        IF problem IS NULL AND _after IS NOT NULL THEN
            SELECT array_agg(m.id) INTO message_ids FROM threadline.messages m
            JOIN threadline.timelines l ON l.tenant_id = _tenant AND l.id = thread.timeline_id
            WHERE m.tenant_id = _tenant AND m.id = ANY (_new.ids) AND m.seq <= _after AND (
                m.timeline_id = l.id OR m.seq <= l.ancestor_seqs[array_position(l.ancestors, m.timeline_id)]
            );
            problem := CASE
                WHEN message_ids IS NOT NULL THEN 'message'
                WHEN _after + 1 > _new.max_count - cardinality(_new.ids) THEN 'limit'
            END;
        END IF;
        IF problem IS NULL AND _after IS NOT NULL THEN
            moved := threadline.move_thread(_tenant, _owner, _role, _now_us, _new.thread_id, _line, _after, NULL);
            problem := moved.problem;
        END IF;
        IF problem IS NOT NULL THEN
            RETURN;
        END IF;
        _new.expected_count := NULL;
    END IF;
    done := threadline.append_locked(_tenant, _owner, _role, _now_us, _new);
    problem := done.problem;
    timeline_id := done.timeline_id;
    first_seq := done.first_seq;
    message_ids := done.message_ids;
    thread := done.thread;
END $$;

-- The ranges of a history, nearest first, at most _most: of each timeline the seqs above `lows` up to `highs`. _ids and
-- _tops are the timeline's ancestors; its history ends at _top.
CREATE FUNCTION threadline.nearest_ranges(
    _timeline text, _top integer, _ids text[], _tops integer[], _most integer,
    OUT lines text[], OUT lows integer[], OUT highs integer[]
) LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    lines := _timeline || _ids[1:_most - 1];
    highs := _top || _tops[1:_most - 1];
    lows := _tops[1:_most] || CASE WHEN cardinality(_tops) < _most THEN -1 END;
END $$;

-- `first` is the seq of the _turns-th last user message at or below _top, null if there are fewer. Reads the nearest
-- ancestors first; ids and tops are the ancestors it has read.
CREATE FUNCTION threadline.find_turn_start(
    _tenant text, _timeline text, _top integer, _turns integer, OUT first integer, OUT ids text[], OUT tops integer[]
) LANGUAGE plpgsql AS $$
DECLARE
    ranges record;
    all_known boolean;
    looked integer;
    questions integer;
BEGIN
    SELECT l.nearest, l.nearest_seqs INTO ids, tops FROM threadline.timelines l
    WHERE l.tenant_id = _tenant AND l.id = _timeline;
    all_known := cardinality(tops) < 16;
    looked := least(_turns + 1, cardinality(tops) + all_known::integer);
    LOOP
        ranges := threadline.nearest_ranges(_timeline, _top, ids, tops, looked);
        SELECT count(*), min(u.seq) INTO questions, first FROM (
            SELECT m.seq FROM unnest(ranges.lines, ranges.lows, ranges.highs) AS r (line, low, high)
            CROSS JOIN LATERAL (
                SELECT m.seq FROM threadline.messages m
                WHERE m.tenant_id = _tenant AND m.timeline_id = r.line AND m.seq > r.low AND m.seq <= r.high
                    AND m.seq <= _top AND m.role = 'u'
                ORDER BY m.seq DESC LIMIT _turns
            ) m
            ORDER BY m.seq DESC LIMIT _turns
        ) u;
        EXIT WHEN questions = _turns;
        first := NULL;
        EXIT WHEN all_known AND looked > cardinality(tops);
        IF NOT all_known THEN
            SELECT l.ancestors, l.ancestor_seqs INTO ids, tops FROM threadline.timelines l
            WHERE l.tenant_id = _tenant AND l.id = _timeline;
            all_known := true;
        END IF;
        looked := least(looked * 4, cardinality(tops) + 1);
    END LOOP;
END $$;

-- The functions below return in `hidden` which parts of a message are hidden, -1 for all of it. Nearly always an owner has
-- hidden nothing, so that is asked once and not for each message.

-- The last turns of a history that reaches into ancestors: all their ranges in one statement.
CREATE FUNCTION threadline.read_last_turns(_tenant text, _timeline text, _top integer, _turns integer) RETURNS TABLE (
    id text, role "char", timeline_id text, seq integer, parts bytea, metadata bytea, turn_id text, created_us bigint,
    hidden integer[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    hides constant boolean := EXISTS (SELECT FROM threadline.hidden_parts h WHERE h.tenant_id = _tenant);
    start record;
    spanned integer := 1;
    ranges record;
BEGIN
    start := threadline.find_turn_start(_tenant, _timeline, _top, _turns);
    start.first := coalesce(start.first, 0);
    WHILE start.tops[spanned] >= start.first LOOP
        spanned := spanned + 1;
    END LOOP;
    ranges := threadline.nearest_ranges(_timeline, _top, start.ids, start.tops, spanned);
    RETURN QUERY SELECT m.id, m.role, m.timeline_id, m.seq, m.parts, m.metadata, m.turn_id, m.created_us,
            CASE WHEN hides THEN (
                SELECT array_agg(h.part) FROM threadline.hidden_parts h
                WHERE h.tenant_id = _tenant AND h.timeline_id = m.timeline_id AND h.seq = m.seq
            ) END
        FROM unnest(ranges.lines, ranges.lows, ranges.highs) AS r (line, low, high)
        CROSS JOIN LATERAL (
            -- OFFSET 0 keeps the planner from turning this into a join over all messages.
            SELECT * FROM threadline.messages m
            WHERE m.tenant_id = _tenant AND m.timeline_id = r.line AND m.seq > r.low AND m.seq <= r.high
                AND m.seq <= _top AND m.seq >= start.first
            OFFSET 0
        ) m
        ORDER BY m.seq;
END $$;

-- The seqs _first to _last of a history in order, one statement per timeline; with _turns, from the _turns-th last user
-- message on. A row without an id means that the thread, or this timeline of it, does not exist.
CREATE FUNCTION threadline.read_messages(
    _tenant text, _owner text, _role text,
    _thread text, _timeline text, _first integer, _last integer, _limit bigint, _turns integer,
    _deleted boolean DEFAULT false
) RETURNS TABLE (
    id text, role "char", timeline_id text, seq integer, parts bytea, metadata bytea, turn_id text, created_us bigint,
    hidden integer[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    hides constant boolean := EXISTS (SELECT FROM threadline.hidden_parts h WHERE h.tenant_id = _tenant);
    ids text[];
    tops integer[];
    present text;
    line text;
    low integer;
    high integer;
    top integer;
    deepest integer := 0;
    read bigint;
BEGIN
    -- CASE, because coalesce is not leakproof: under row security every timeline of the tenant would be read.
    SELECT l.id, t.message_count - 1, l.nearest, l.nearest_seqs INTO present, top, ids, tops
    FROM threadline.threads t
    JOIN threadline.timelines l ON l.tenant_id = _tenant
        AND l.id = CASE WHEN _timeline IS NULL THEN t.timeline_id ELSE _timeline END
    WHERE t.tenant_id = _tenant AND t.id = _thread AND (_deleted OR t.deleted_at IS NULL);
    IF _timeline IS NOT NULL THEN
        top := threadline.last_seq_of(_tenant, _thread, _timeline);
    END IF;
    IF top IS NULL THEN
        RETURN QUERY SELECT NULL::text, NULL::"char", NULL::text, 0, NULL::bytea, NULL::bytea, NULL::text, 0::bigint,
            NULL::integer[];
        RETURN;
    END IF;
    top := least(top, _last);
    IF _turns IS NOT NULL THEN
        low := coalesce(tops[1], -1);
        SELECT m.seq INTO _first FROM threadline.messages m
        WHERE m.tenant_id = _tenant AND m.timeline_id = present AND m.seq > low AND m.seq <= top AND m.role = 'u'
        ORDER BY m.seq DESC OFFSET _turns - 1 LIMIT 1;
        IF NOT FOUND AND low >= 0 THEN
            RETURN QUERY SELECT * FROM threadline.read_last_turns(_tenant, present, top, _turns);
            RETURN;
        END IF;
        _first := coalesce(_first, 0);
    END IF;
    IF tops[16] >= _first THEN
        SELECT l.ancestors, l.ancestor_seqs INTO ids, tops FROM threadline.timelines l
        WHERE l.tenant_id = _tenant AND l.id = present;
    END IF;
    WHILE tops[deepest + 1] >= _first LOOP
        deepest := deepest + 1;
    END LOOP;
    FOR place IN REVERSE deepest..0 LOOP
        low := greatest(_first, coalesce(tops[place + 1] + 1, 0));
        high := least(top, tops[place]);
        line := coalesce(ids[place], present);
        RETURN QUERY SELECT m.id, m.role, m.timeline_id, m.seq, m.parts, m.metadata, m.turn_id, m.created_us,
            CASE WHEN hides THEN (
                SELECT array_agg(h.part) FROM threadline.hidden_parts h
                WHERE h.tenant_id = _tenant AND h.timeline_id = m.timeline_id AND h.seq = m.seq
            ) END
            FROM threadline.messages m
            WHERE m.tenant_id = _tenant AND m.timeline_id = line AND m.seq >= low AND m.seq <= high
            ORDER BY m.seq LIMIT _limit;
        GET DIAGNOSTICS read = ROW_COUNT;
        _limit := _limit - read;
        EXIT WHEN _limit <= 0;
    END LOOP;
END $$;

-- The last messages of a history, at most _most, newest first, as far as the nearest ancestors have them: one statement
-- that is enough for most windows. Ranges are read nearest first, each backwards along its index, so nothing is sorted. A
-- row without an id means that the thread does not exist.
CREATE FUNCTION threadline.read_newest(
    _tenant text, _owner text, _role text, _thread text, _last integer, _most integer
) RETURNS TABLE (
    id text, role "char", timeline_id text, seq integer, parts bytea, metadata bytea, turn_id text, created_us bigint,
    hidden integer[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    hides constant boolean := EXISTS (SELECT FROM threadline.hidden_parts h WHERE h.tenant_id = _tenant);
    ids text[];
    tops integer[];
    present text;
    top integer;
BEGIN
    SELECT l.id, least(t.message_count - 1, _last), l.nearest, l.nearest_seqs INTO present, top, ids, tops
    FROM threadline.threads t
    JOIN threadline.timelines l ON l.tenant_id = _tenant AND l.id = t.timeline_id
    WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL;
    IF present IS NULL THEN
        RETURN QUERY SELECT NULL::text, NULL::"char", NULL::text, 0, NULL::bytea, NULL::bytea, NULL::text, 0::bigint,
            NULL::integer[];
    ELSIF cardinality(tops) = 0 THEN
        RETURN QUERY SELECT m.id, m.role, m.timeline_id, m.seq, m.parts, m.metadata, m.turn_id, m.created_us,
            CASE WHEN hides THEN (
                SELECT array_agg(h.part) FROM threadline.hidden_parts h
                WHERE h.tenant_id = _tenant AND h.timeline_id = m.timeline_id AND h.seq = m.seq
            ) END
            FROM threadline.messages m
            WHERE m.tenant_id = _tenant AND m.timeline_id = present AND m.seq <= top
            ORDER BY m.seq DESC LIMIT _most;
    ELSE
        -- If there are 16 nearest ancestors, the beginning of the last one is not known here, so it is not read.
        IF cardinality(tops) < 16 THEN
            tops := tops || -1;
        END IF;
        RETURN QUERY SELECT m.id, m.role, m.timeline_id, m.seq, m.parts, m.metadata, m.turn_id, m.created_us,
            CASE WHEN hides THEN (
                SELECT array_agg(h.part) FROM threadline.hidden_parts h
                WHERE h.tenant_id = _tenant AND h.timeline_id = m.timeline_id AND h.seq = m.seq
            ) END
            FROM unnest(present || ids[1:cardinality(tops) - 1], tops, top || tops[1:cardinality(tops) - 1])
                AS r (line, low, high)
            CROSS JOIN LATERAL (
                SELECT * FROM threadline.messages m
                WHERE m.tenant_id = _tenant AND m.timeline_id = r.line AND m.seq > r.low AND m.seq <= r.high
                    AND m.seq <= top
                ORDER BY m.seq DESC LIMIT _most
            ) m
            LIMIT _most;
    END IF;
END $$;

-- One message of the thread's history.
CREATE FUNCTION threadline.find_message(
    _tenant text, _owner text, _role text, _thread text, _message text
) RETURNS TABLE (
    id text, role "char", timeline_id text, seq integer, parts bytea, metadata bytea, turn_id text, created_us bigint,
    hidden integer[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    hides constant boolean := EXISTS (SELECT FROM threadline.hidden_parts h WHERE h.tenant_id = _tenant);
BEGIN
    RETURN QUERY SELECT m.id, m.role, m.timeline_id, m.seq, m.parts, m.metadata, m.turn_id, m.created_us,
            CASE WHEN hides THEN (
                SELECT array_agg(h.part) FROM threadline.hidden_parts h
                WHERE h.tenant_id = _tenant AND h.timeline_id = m.timeline_id AND h.seq = m.seq
            ) END
        FROM threadline.threads t
        JOIN threadline.timelines l ON l.tenant_id = _tenant AND l.id = t.timeline_id
        JOIN threadline.messages m ON m.tenant_id = _tenant AND m.id = _message
        WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL AND (
            m.timeline_id = l.id OR m.seq <= l.ancestor_seqs[array_position(l.ancestors, m.timeline_id)]
        );
END $$;
