CREATE FUNCTION threadline.owner_mark(_tenant text, _owner text) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN chr(1) || md5(_tenant || '/' || _owner);

-- The index marks which of an owner's messages a row is, in the order of indexing, by windows of 4,096 messages on level
-- 1 and of eight times as many on each of the next three levels. So a frequent word can be searched in the newest first.
CREATE FUNCTION threadline.window_mark(_tenant text, _owner text, _level integer, _number bigint) RETURNS text
LANGUAGE sql IMMUTABLE
    RETURN chr(2) || _level || '.' || to_hex(_number) || '.' || left(md5(_tenant || '/' || _owner), 12);

CREATE FUNCTION threadline.window_at(_level integer, _indexed bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN _indexed >> (9 + 3 * _level);

CREATE FUNCTION threadline.window_marks(_tenant text, _owner text, _indexed bigint) RETURNS text[] LANGUAGE sql IMMUTABLE
    RETURN threadline.owner_mark(_tenant, _owner) || (
        SELECT array_agg(threadline.window_mark(_tenant, _owner, level, threadline.window_at(level, _indexed)))
        FROM generate_series(1, 4) level
    );

-- Messages of this transaction's owner that contain every word (`zeb*`: a word that begins so): all, or the newest if there are more than _most. Listing
-- all messages with a frequent word would be too slow, so the last two windows are searched first, then wider ones,
-- until there are enough. _indexed is how many of the owner's messages were indexed.
--
-- SECURITY DEFINER, because `@@` is not leakproof: under row security PostgreSQL would apply the policy to every row
-- before using the index. The function filters by the transaction's tenant and owner itself, and its owner can read
-- nothing but this table.
CREATE FUNCTION threadline.match_words(_words text[], _most integer, _indexed bigint)
RETURNS TABLE (timeline_id text, seq integer, size integer, created_us bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    tenant constant text := nullif(current_setting('threadline.tenant', true), '');
    owner constant text := nullif(current_setting('threadline.owner', true), '');
    words tsquery;
    query tsquery;
    last_window bigint;
    got bigint;
BEGIN
    IF tenant IS NULL OR owner IS NULL OR cardinality(_words) = 0 THEN
        RETURN;
    END IF;
    SELECT string_agg(CASE WHEN word LIKE '%*' THEN quote_literal(left(word, -1)) || ':*' ELSE quote_literal(word) END, ' & ')::tsquery
    INTO words FROM unnest(_words) word;
    FOR level IN 1..4 LOOP
        last_window := threadline.window_at(level, _indexed);
        EXIT WHEN last_window < 2;
        query := words && (quote_literal(threadline.window_mark(tenant, owner, level, last_window))::tsquery
            || quote_literal(threadline.window_mark(tenant, owner, level, last_window - 1))::tsquery);
        SELECT count(*) INTO got FROM (
            SELECT FROM threadline.message_search s
            WHERE s.words @@ query AND s.tenant_id = tenant AND s.owner_id = owner LIMIT _most
        ) matching;
        EXIT WHEN got = _most;
        query := NULL;
    END LOOP;
    query := coalesce(query, words && quote_literal(threadline.owner_mark(tenant, owner))::tsquery);
    RETURN QUERY SELECT s.timeline_id, s.seq, s.size, s.created_us FROM threadline.message_search s
        WHERE s.words @@ query AND s.tenant_id = tenant AND s.owner_id = owner
        ORDER BY s.created_us DESC LIMIT _most;
END $$;
REVOKE ALL ON FUNCTION threadline.match_words FROM public;
GRANT EXECUTE ON FUNCTION threadline.match_words TO threadline_app, threadline_worker;
-- A new owner needs CREATE on the schema at the moment of the change, and never again.
GRANT CREATE ON SCHEMA threadline TO threadline_search;
ALTER FUNCTION threadline.match_words OWNER TO threadline_search;
REVOKE CREATE ON SCHEMA threadline FROM threadline_search;

-- A thread, not deleted, whose history contains the message: the one it was written in, or else one whose timeline is
-- the message's or forked from it.
CREATE FUNCTION threadline.find_showing_thread(_tenant text, _timeline text, _seq integer) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    thread text;
BEGIN
    SELECT t.id INTO thread FROM threadline.timelines l
    JOIN threadline.threads t ON t.tenant_id = _tenant AND t.id = l.thread_id AND t.deleted_at IS NULL
    JOIN threadline.timelines present ON present.tenant_id = _tenant AND present.id = t.timeline_id
    WHERE l.tenant_id = _tenant AND l.id = _timeline AND (
        present.id = l.id OR _seq <= present.ancestor_seqs[array_position(present.ancestors, l.id)]
    );
    IF FOUND THEN
        RETURN thread;
    END IF;
    WITH RECURSIVE line (id, thread_id) AS (
        SELECT l.id, l.thread_id FROM threadline.timelines l WHERE l.tenant_id = _tenant AND l.id = _timeline
        UNION ALL
        SELECT l.id, l.thread_id FROM line JOIN threadline.timelines l
            ON l.tenant_id = _tenant AND cardinality(l.nearest) > 0 AND l.nearest[1] = line.id
        WHERE l.nearest_seqs[1] >= _seq
    )
    SELECT t.id INTO thread FROM line JOIN threadline.threads t
        ON t.tenant_id = _tenant AND t.id = line.thread_id AND t.timeline_id = line.id AND t.deleted_at IS NULL
    LIMIT 1;
    RETURN thread;
END $$;

-- Whether the index lacks messages or titles of the owner.
CREATE FUNCTION threadline.has_unindexed(_tenant text, _owner text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF EXISTS (
        SELECT FROM threadline.threads t
        WHERE t.tenant_id = _tenant AND t.owner_id = _owner AND t.indexed_count < t.message_count
    ) THEN
        RETURN true;
    END IF;
    IF EXISTS (
        SELECT FROM threadline.threads t
        WHERE t.tenant_id = _tenant AND t.owner_id = _owner AND t.title IS DISTINCT FROM t.indexed_title
    ) THEN
        RETURN true;
    END IF;
    RETURN EXISTS (
        SELECT FROM threadline.search_backlog b WHERE b.tenant_id = _tenant AND b.owner_id = _owner
    );
END $$;

-- Hits by density (shortest message first), among the newest _most for a frequent word. A row without a thread means
-- that the owner has messages that are not indexed yet; _caught_up skips that check.
CREATE FUNCTION threadline.search_messages(
    _tenant text, _owner text, _role text, _words text[], _most integer, _limit integer, _offset integer,
    _caught_up boolean, _labels text[], _surface text, _since_us bigint, _until_us bigint
) RETURNS TABLE (
    thread_id text, state_key text, title text, message_id text, seq integer, role "char", parts bytea, created_us bigint,
    hidden integer[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    indexed bigint;
    hit record;
    thread text;
    marks integer[];
BEGIN
    IF NOT _caught_up AND threadline.has_unindexed(_tenant, _owner) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT u.indexed_messages INTO indexed FROM threadline.users u WHERE u.tenant_id = _tenant AND u.id = _owner;
    FOR hit IN SELECT * FROM threadline.match_words(_words, _most, coalesce(indexed, 0))
        ORDER BY size, created_us DESC, timeline_id, seq DESC
    LOOP
        thread := threadline.find_showing_thread(_tenant, hit.timeline_id, hit.seq);
        CONTINUE WHEN thread IS NULL
            OR NOT threadline.matches_filter(_tenant, _owner, thread, _labels, _surface, _since_us, _until_us);
        SELECT array_agg(h.part) INTO marks FROM threadline.hidden_parts h
        WHERE h.tenant_id = _tenant AND h.timeline_id = hit.timeline_id AND h.seq = hit.seq;
        CONTINUE WHEN -1 = ANY (marks);
        _offset := _offset - 1;
        CONTINUE WHEN _offset >= 0;
        RETURN QUERY SELECT t.id, t.state_key, t.title, m.id, m.seq, m.role, m.parts, m.created_us, marks
            FROM threadline.threads t, threadline.messages m
            WHERE t.tenant_id = _tenant AND t.id = thread
                AND m.tenant_id = _tenant AND m.timeline_id = hit.timeline_id AND m.seq = hit.seq;
        _limit := _limit - 1;
        EXIT WHEN _limit <= 0;
    END LOOP;
END $$;

-- Messages that are not indexed yet, timeline by timeline.
CREATE FUNCTION threadline.unindexed_messages(_tenant text, _limit integer) RETURNS TABLE (
    timeline_id text, seq integer, parts bytea
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT m.timeline_id, m.seq, m.parts
        FROM (
            SELECT t.timeline_id, t.indexed_count AS first_seq, t.message_count - 1 AS last_seq
            FROM threadline.threads t WHERE t.tenant_id = _tenant AND t.indexed_count < t.message_count
            UNION ALL
            SELECT b.timeline_id, b.first_seq, b.last_seq FROM threadline.search_backlog b WHERE b.tenant_id = _tenant
        ) waiting
        CROSS JOIN LATERAL (
            SELECT m.timeline_id, m.seq, m.parts FROM threadline.messages m
            WHERE m.tenant_id = _tenant AND m.timeline_id = waiting.timeline_id
                AND m.seq >= waiting.first_seq AND m.seq <= waiting.last_seq
            ORDER BY m.seq LIMIT _limit
        ) m
        ORDER BY m.timeline_id, m.seq LIMIT _limit;
END $$;

-- Adds messages to the index, the words of each as one text, and advances indexed_count and the backlog. Locks threads
-- and timelines in the order of a purge, so that no words remain of a message that is purged at the same time.
CREATE FUNCTION threadline.index_messages(
    _tenant text, _timelines text[], _seqs integer[], _sizes integer[], _words text[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    taken record;
    read record;
BEGIN
    PERFORM FROM threadline.timelines l JOIN threadline.threads t ON t.tenant_id = _tenant AND t.id = l.thread_id
    WHERE l.tenant_id = _tenant AND l.id = ANY (_timelines) ORDER BY t.id FOR NO KEY UPDATE OF t;
    PERFORM FROM threadline.timelines l
    WHERE l.tenant_id = _tenant AND l.id = ANY (_timelines) ORDER BY l.id FOR KEY SHARE;
    FOR taken IN
        SELECT l.owner_id, count(*) AS messages FROM unnest(_timelines) AS g (timeline_id)
        JOIN threadline.timelines l ON l.tenant_id = _tenant AND l.id = g.timeline_id
        GROUP BY l.owner_id ORDER BY l.owner_id
    LOOP
        UPDATE threadline.users u SET indexed_messages = u.indexed_messages + taken.messages
        WHERE u.tenant_id = _tenant AND u.id = taken.owner_id;
    END LOOP;
    INSERT INTO threadline.message_search (tenant_id, timeline_id, seq, size, created_us, owner_id, words)
    SELECT _tenant, m.timeline_id, m.seq, g.size, m.created_us, m.owner_id, array_to_tsvector(
            threadline.window_marks(_tenant, m.owner_id, u.indexed_messages) || string_to_array(g.words, ' ')
        )
    FROM unnest(_timelines, _seqs, _sizes, _words) AS g (timeline_id, seq, size, words)
    JOIN threadline.messages m ON m.tenant_id = _tenant AND m.timeline_id = g.timeline_id AND m.seq = g.seq
    JOIN threadline.users u ON u.tenant_id = _tenant AND u.id = m.owner_id
    ON CONFLICT (tenant_id, timeline_id, seq) DO UPDATE SET words = excluded.words, size = excluded.size;
    FOR read IN
        SELECT g.timeline_id, max(g.seq) AS top FROM unnest(_timelines, _seqs) AS g (timeline_id, seq)
        GROUP BY g.timeline_id ORDER BY g.timeline_id
    LOOP
        UPDATE threadline.threads t SET indexed_count = least(read.top + 1, t.message_count)
        FROM threadline.timelines l
        WHERE l.tenant_id = _tenant AND l.id = read.timeline_id
            AND t.tenant_id = _tenant AND t.id = l.thread_id AND t.timeline_id = l.id AND t.indexed_count <= read.top;
        DELETE FROM threadline.search_backlog b
        WHERE b.tenant_id = _tenant AND b.timeline_id = read.timeline_id AND b.last_seq <= read.top;
        UPDATE threadline.search_backlog b SET first_seq = read.top + 1
        WHERE b.tenant_id = _tenant AND b.timeline_id = read.timeline_id AND b.first_seq <= read.top;
    END LOOP;
END $$;
