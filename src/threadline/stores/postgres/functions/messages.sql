-- Writes the messages, if nobody else wrote to the thread since this began and nothing given was here before; both are
-- part of the one UPDATE. The row it locks is read again after a wait, and its count and timeline then differ from those
-- seen at first. A key that somebody else takes meanwhile is refused by the index, and the append is made again. The
-- answer is the timeline and the first seq, or null where the append has to be made carefully; _looked says that this was
-- done, and that whatever else has these ids does not stand in the way.
CREATE FUNCTION threadline.append(
    _tenant text, _owner text, _role text, _now_us bigint,
    _thread text, _ids text[], _roles text, _parts bytea[], _metadata bytea[], _created bigint[],
    _key text, _fingerprint bytea, _expected integer, _most integer, _turn text, _tokens integer, _title text,
    _looked boolean DEFAULT false
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    given constant integer := cardinality(_ids);
    line text;
    first integer;
    holder text;
BEGIN
    IF _key IS NOT NULL THEN
        PERFORM FROM threadline.append_keys k
        WHERE k.tenant_id = _tenant AND k.thread_id = _thread AND k.key = _key;
        IF FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    UPDATE threadline.threads t
    SET message_count = t.message_count + given, token_count = t.token_count + _tokens,
        updated_at = threadline.moment(_now_us), title = coalesce(t.title, _title)
    WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL
        AND (t.message_count, t.timeline_id) = (
            SELECT seen.message_count, seen.timeline_id FROM threadline.threads seen
            WHERE seen.tenant_id = _tenant AND seen.id = _thread
        )
        AND t.message_count <= _most - given AND (_expected IS NULL OR t.message_count = _expected)
        AND (_looked OR NOT EXISTS (SELECT FROM threadline.messages m WHERE m.tenant_id = _tenant AND m.id = ANY (_ids)))
    RETURNING t.timeline_id, t.message_count - given, t.owner_id INTO line, first, holder;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO threadline.messages
        (created_us, seq, role, tenant_id, timeline_id, owner_id, id, turn_id, parts, metadata)
    SELECT coalesce(g.created_us, _now_us), first + g.place - 1, substr(_roles, g.place::integer, 1)::"char",
        _tenant, line, holder, g.id, _turn, g.parts, g.metadata
    FROM unnest(_ids, _parts, _metadata, _created) WITH ORDINALITY AS g (id, parts, metadata, created_us, place);
    IF _key IS NOT NULL THEN
        INSERT INTO threadline.append_keys
            (tenant_id, thread_id, key, owner_id, fingerprint, timeline_id, first_seq, messages, created_at)
        VALUES (_tenant, _thread, _key, holder, _fingerprint, line, first, given, threadline.moment(_now_us));
    END IF;
    RETURN line || ' ' || first;
END $$;

-- Several appends of one tenant in one transaction, each in the scope of whoever made it; what the arrays hold for each
-- message stands one append after the other. Nobody waits long for a thread that somebody else has locked: the whole
-- fails instead, and each is made alone.
CREATE FUNCTION threadline.append_together(
    _tenant text, _owners text[], _acting text[], _now_us bigint[], _threads text[], _counts integer[],
    _ids text[], _roles text, _parts bytea[], _metadata bytea[], _created bigint[],
    _keys text[], _fingerprints bytea[], _expected integer[], _most integer, _turns text[], _tokens integer[],
    _titles text[]
) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    patience constant text := set_config('lock_timeout', '50ms', true);
    placed text[] := '{}';
    first integer := 1;
    last integer;
BEGIN
    FOR n IN 1..cardinality(_threads) LOOP
        last := first + _counts[n] - 1;
        placed[n] := threadline.append(
            _tenant, _owners[n], _acting[n], _now_us[n], _threads[n], _ids[first:last], substr(_roles, first, _counts[n]),
            _parts[first:last], _metadata[first:last], _created[first:last], _keys[n], _fingerprints[n], _expected[n],
            _most, _turns[n], _tokens[n], _titles[n]
        );
        first := last + 1;
    END LOOP;
    RETURN placed;
END $$;

-- The same with the thread's row locked first, so that `problem` can say what stands in the way. 'repeat' means that the
-- same was done under this key, 'standing' that the ids are here in this order; whether they came with the same content
-- is for the caller to compare.
CREATE FUNCTION threadline.append_carefully(
    _tenant text, _owner text, _role text, _now_us bigint,
    _thread text, _ids text[], _roles text, _parts bytea[], _metadata bytea[], _created bigint[],
    _key text, _fingerprint bytea, _expected integer, _most integer, _turn text, _tokens integer, _title text,
    OUT problem text, OUT timeline_id text, OUT first_seq integer, OUT message_ids text[]
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    given constant integer := cardinality(_ids);
    thread threadline.threads;
    earlier threadline.append_keys;
    newest integer;
    placed text;
BEGIN
    SELECT * INTO thread FROM threadline.threads t
    WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        problem := 'thread';
        RETURN;
    END IF;
    SELECT * INTO earlier FROM threadline.append_keys k
    WHERE k.tenant_id = _tenant AND k.thread_id = _thread AND k.key = _key;
    IF FOUND THEN
        problem := CASE WHEN earlier.fingerprint = _fingerprint THEN 'repeat' ELSE 'key' END;
        timeline_id := earlier.timeline_id;
        first_seq := earlier.first_seq;
        SELECT array_agg(m.id ORDER BY m.seq) INTO message_ids FROM threadline.messages m
        WHERE m.tenant_id = _tenant AND m.timeline_id = earlier.timeline_id
            AND m.seq BETWEEN earlier.first_seq AND earlier.first_seq + earlier.messages - 1;
        RETURN;
    END IF;
    -- Where the given ids stand in this history, in the order of the history.
    SELECT min(m.seq), max(m.seq), (array_agg(m.timeline_id ORDER BY m.seq))[1], array_agg(m.id ORDER BY m.seq)
    INTO first_seq, newest, timeline_id, message_ids
    FROM threadline.messages m JOIN threadline.timelines l ON l.tenant_id = _tenant AND l.id = thread.timeline_id
    WHERE m.tenant_id = _tenant AND m.id = ANY (_ids) AND (
        m.timeline_id = l.id OR m.seq <= l.ancestor_seqs[array_position(l.ancestors, m.timeline_id)]
    );
    IF message_ids IS NOT NULL THEN
        problem := CASE
            WHEN message_ids = _ids AND newest = first_seq + given - 1 THEN 'standing' ELSE 'message'
        END;
        RETURN;
    END IF;
    timeline_id := thread.timeline_id;
    first_seq := thread.message_count;
    problem := CASE
        WHEN _expected <> thread.message_count THEN 'count'
        WHEN thread.message_count > _most - given THEN 'limit'
    END;
    IF problem IS NULL THEN
        placed := threadline.append(_tenant, _owner, _role, _now_us, _thread, _ids, _roles, _parts, _metadata, _created,
            _key, _fingerprint, _expected, _most, _turn, _tokens, _title, _looked => true);
        ASSERT placed = timeline_id || ' ' || first_seq, 'a locked thread changed';
    END IF;
END $$;

-- The ranges that a history is made of, nearest first, at most so many: of each timeline what lies above `lows` up to
-- `highs`. ids and tops are the ancestors of the timeline, which has the history up to _top.
CREATE FUNCTION threadline.nearest_ranges(
    _timeline text, _top integer, _ids text[], _tops integer[], _most integer,
    OUT lines text[], OUT lows integer[], OUT highs integer[]
) LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    lines := _timeline || _ids[1:_most - 1];
    highs := _top || _tops[1:_most - 1];
    lows := _tops[1:_most] || CASE WHEN cardinality(_tops) < _most THEN -1 END;
END $$;

-- The seq of the _turns-th last user message of a timeline's history, at or below _top; null if there are fewer. Looks
-- among the nearest ancestors first; ids and tops are those it knows of in the end.
CREATE FUNCTION threadline.start_of_turns(
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

-- The last turns of a history that reaches into ancestors: the ranges they span in one statement, however many.
CREATE FUNCTION threadline.read_far(_tenant text, _timeline text, _top integer, _turns integer) RETURNS TABLE (
    id text, role "char", timeline_id text, seq integer, parts bytea, metadata bytea, turn_id text, created_us bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    start record;
    spanned integer := 1;
    ranges record;
BEGIN
    start := threadline.start_of_turns(_tenant, _timeline, _top, _turns);
    start.first := coalesce(start.first, 0);
    WHILE start.tops[spanned] >= start.first LOOP
        spanned := spanned + 1;
    END LOOP;
    ranges := threadline.nearest_ranges(_timeline, _top, start.ids, start.tops, spanned);
    RETURN QUERY SELECT m.id, m.role, m.timeline_id, m.seq, m.parts, m.metadata, m.turn_id, m.created_us
        FROM unnest(ranges.lines, ranges.lows, ranges.highs) AS r (line, low, high)
        CROSS JOIN LATERAL (
            -- OFFSET keeps this from being turned into a join over all messages.
            SELECT * FROM threadline.messages m
            WHERE m.tenant_id = _tenant AND m.timeline_id = r.line AND m.seq > r.low AND m.seq <= r.high
                AND m.seq <= _top AND m.seq >= start.first
            OFFSET 0
        ) m
        ORDER BY m.seq;
END $$;

-- A range of a history in order, timeline by timeline, oldest first; with _turns, the range that begins with the
-- _turns-th last user message. A row without an id says that the thread, or a timeline of it, is not here.
CREATE FUNCTION threadline.read_messages(
    _tenant text, _owner text, _role text,
    _thread text, _timeline text, _first integer, _last integer, _limit bigint, _turns integer
) RETURNS TABLE (
    id text, role "char", timeline_id text, seq integer, parts bytea, metadata bytea, turn_id text, created_us bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
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
    -- CASE, because row security takes coalesce for a leak and would read every timeline of the tenant instead.
    SELECT l.id, t.message_count - 1, l.nearest, l.nearest_seqs INTO present, top, ids, tops
    FROM threadline.threads t
    JOIN threadline.timelines l ON l.tenant_id = _tenant
        AND l.id = CASE WHEN _timeline IS NULL THEN t.timeline_id ELSE _timeline END
    WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL;
    IF _timeline IS NOT NULL THEN
        top := threadline.top_of(_tenant, _thread, _timeline);
    END IF;
    IF top IS NULL THEN
        RETURN QUERY SELECT NULL::text, NULL::"char", NULL::text, 0, NULL::bytea, NULL::bytea, NULL::text, 0::bigint;
        RETURN;
    END IF;
    top := least(top, _last);
    IF _turns IS NOT NULL THEN
        low := coalesce(tops[1], -1);
        SELECT m.seq INTO _first FROM threadline.messages m
        WHERE m.tenant_id = _tenant AND m.timeline_id = present AND m.seq > low AND m.seq <= top AND m.role = 'u'
        ORDER BY m.seq DESC OFFSET _turns - 1 LIMIT 1;
        IF NOT FOUND AND low >= 0 THEN
            RETURN QUERY SELECT * FROM threadline.read_far(_tenant, present, top, _turns);
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
        RETURN QUERY SELECT m.id, m.role, m.timeline_id, m.seq, m.parts, m.metadata, m.turn_id, m.created_us
            FROM threadline.messages m
            WHERE m.tenant_id = _tenant AND m.timeline_id = line AND m.seq >= low AND m.seq <= high
            ORDER BY m.seq LIMIT _limit;
        GET DIAGNOSTICS read = ROW_COUNT;
        _limit := _limit - read;
        EXIT WHEN _limit <= 0;
    END LOOP;
END $$;

-- The last messages of a history, at most so many, newest first, as far as the nearest ancestors hold them: enough for
-- most windows, and with one statement. The ranges are met from the nearest on and each runs down its index, so nothing
-- is sorted. A row without an id says that the thread is not here.
CREATE FUNCTION threadline.read_newest(
    _tenant text, _owner text, _role text, _thread text, _last integer, _most integer
) RETURNS TABLE (
    id text, role "char", timeline_id text, seq integer, parts bytea, metadata bytea, turn_id text, created_us bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
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
        RETURN QUERY SELECT NULL::text, NULL::"char", NULL::text, 0, NULL::bytea, NULL::bytea, NULL::text, 0::bigint;
    ELSIF cardinality(tops) = 0 THEN
        RETURN QUERY SELECT m.id, m.role, m.timeline_id, m.seq, m.parts, m.metadata, m.turn_id, m.created_us
            FROM threadline.messages m
            WHERE m.tenant_id = _tenant AND m.timeline_id = present AND m.seq <= top
            ORDER BY m.seq DESC LIMIT _most;
    ELSE
        -- Of the last of 16 nobody says here where it begins, so it only bounds the one before.
        IF cardinality(tops) < 16 THEN
            tops := tops || -1;
        END IF;
        RETURN QUERY SELECT m.id, m.role, m.timeline_id, m.seq, m.parts, m.metadata, m.turn_id, m.created_us
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

-- One message of a thread's present history.
CREATE FUNCTION threadline.find_message(
    _tenant text, _owner text, _role text, _thread text, _message text
) RETURNS TABLE (
    id text, role "char", timeline_id text, seq integer, parts bytea, metadata bytea, turn_id text, created_us bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
BEGIN
    RETURN QUERY SELECT m.id, m.role, m.timeline_id, m.seq, m.parts, m.metadata, m.turn_id, m.created_us
        FROM threadline.threads t
        JOIN threadline.timelines l ON l.tenant_id = _tenant AND l.id = t.timeline_id
        JOIN threadline.messages m ON m.tenant_id = _tenant AND m.id = _message
        WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL AND (
            m.timeline_id = l.id OR m.seq <= l.ancestor_seqs[array_position(l.ancestors, m.timeline_id)]
        );
END $$;
