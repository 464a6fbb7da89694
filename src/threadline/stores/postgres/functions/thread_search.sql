-- Whether a thread that is not deleted matches the filter of a list.
CREATE FUNCTION threadline.matches_filter(
    _tenant text, _owner text, _thread text, _labels text[], _surface text, _since_us bigint, _until_us bigint
) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF _labels = '{}' AND _surface IS NULL AND _since_us IS NULL AND _until_us IS NULL THEN
        RETURN true;
    END IF;
    IF NOT EXISTS (
        SELECT FROM threadline.threads t
        WHERE t.tenant_id = _tenant AND t.id = _thread
            AND t.updated_at >= coalesce(threadline.from_us(_since_us), '-infinity')
            AND t.updated_at < coalesce(threadline.from_us(_until_us), 'infinity')
    ) THEN
        RETURN false;
    END IF;
    IF _surface IS NOT NULL AND NOT EXISTS (
        SELECT FROM threadline.turns r
        WHERE r.tenant_id = _tenant AND r.owner_id = _owner AND r.surface = _surface AND r.thread_id = _thread
    ) THEN
        RETURN false;
    END IF;
    RETURN threadline.has_labels(_tenant, _owner, _thread, _labels);
END $$;

-- Threads of this transaction's owner whose title contains every word, at most _most of them.
-- SECURITY DEFINER for the reason that match_words gives.
CREATE FUNCTION threadline.match_titles(_words text[], _most integer) RETURNS TABLE (thread_id text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    tenant constant text := nullif(current_setting('threadline.tenant', true), '');
    owner constant text := nullif(current_setting('threadline.owner', true), '');
    query tsquery;
BEGIN
    IF tenant IS NULL OR owner IS NULL OR cardinality(_words) = 0 THEN
        RETURN;
    END IF;
    SELECT string_agg(CASE WHEN word LIKE '%*' THEN quote_literal(left(word, -1)) || ':*' ELSE quote_literal(word) END, ' & ')::tsquery
        && quote_literal(threadline.owner_mark(tenant, owner))::tsquery
    INTO query FROM unnest(_words) word;
    RETURN QUERY SELECT s.thread_id FROM threadline.title_search s
        WHERE s.words @@ query AND s.tenant_id = tenant AND s.owner_id = owner
        ORDER BY s.thread_id DESC LIMIT _most;
END $$;
REVOKE ALL ON FUNCTION threadline.match_titles FROM public;
GRANT EXECUTE ON FUNCTION threadline.match_titles TO threadline_app, threadline_worker;
GRANT CREATE ON SCHEMA threadline TO threadline_search;
ALTER FUNCTION threadline.match_titles OWNER TO threadline_search;
REVOKE CREATE ON SCHEMA threadline FROM threadline_search;

-- Threads with their best passages, one row for each passage, or one row with nulls for a thread found by its title
-- alone. First the threads whose title contains the words, latest activity first, then the others by their best passage.
-- A row without a thread means that the owner has something that is not indexed yet; _caught_up skips that check.
CREATE FUNCTION threadline.search_threads(
    _tenant text, _owner text, _role text, _words text[], _most integer, _limit integer, _offset integer,
    _caught_up boolean, _labels text[], _surface text, _since_us bigint, _until_us bigint, _passages integer
) RETURNS TABLE (
    thread_id text, state_key text, title text, updated_us bigint, is_title boolean, hit_count bigint,
    message_id text, seq integer, role "char", parts bytea, created_us bigint, hidden integer[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    indexed bigint;
BEGIN
    IF NOT _caught_up AND threadline.has_unindexed(_tenant, _owner) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT u.indexed_messages INTO indexed FROM threadline.users u WHERE u.tenant_id = _tenant AND u.id = _owner;
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT f.timeline_id, f.seq,
            row_number() OVER (ORDER BY f.size, f.created_us DESC, f.timeline_id, f.seq DESC) AS place
        FROM threadline.match_words(_words, _most, coalesce(indexed, 0)) f
        WHERE NOT EXISTS (
            SELECT FROM threadline.hidden_parts h
            WHERE h.tenant_id = _tenant AND h.timeline_id = f.timeline_id AND h.seq = f.seq AND h.part = -1
        )
    ), shown AS MATERIALIZED (
        -- Joined for the common case: the thread where a message was written still shows it.
        SELECT f.timeline_id, f.seq, f.place, CASE
                WHEN c.id = f.timeline_id OR f.seq <= c.ancestor_seqs[array_position(c.ancestors, f.timeline_id)]
                THEN t.id ELSE threadline.find_showing_thread(_tenant, f.timeline_id, f.seq)
            END AS thread_id
        FROM found f
        JOIN threadline.timelines l ON l.tenant_id = _tenant AND l.id = f.timeline_id
        LEFT JOIN threadline.threads t ON t.tenant_id = _tenant AND t.id = l.thread_id AND t.deleted_at IS NULL
        LEFT JOIN threadline.timelines c ON c.tenant_id = _tenant AND c.id = t.timeline_id
    ), passages AS (
        SELECT s.thread_id, min(s.place) AS best, count(*) AS hits FROM shown s
        WHERE s.thread_id IS NOT NULL GROUP BY s.thread_id
    ), titled AS (
        SELECT m.thread_id FROM threadline.match_titles(_words, _most) m
    ), page AS (
        SELECT t.id, t.state_key, t.title, t.updated_at, n.thread_id IS NOT NULL AS is_title,
            coalesce(p.hits, 0) AS hits,
            row_number() OVER (
                ORDER BY n.thread_id IS NULL, CASE WHEN n.thread_id IS NOT NULL THEN t.updated_at END DESC, p.best, t.id DESC
            ) AS place
        FROM passages p FULL JOIN titled n ON n.thread_id = p.thread_id
        JOIN threadline.threads t
            ON t.tenant_id = _tenant AND t.id = coalesce(n.thread_id, p.thread_id) AND t.deleted_at IS NULL
        WHERE threadline.matches_filter(_tenant, _owner, t.id, _labels, _surface, _since_us, _until_us)
        ORDER BY place LIMIT _limit OFFSET _offset
    )
    SELECT g.id, g.state_key, g.title, (extract(epoch FROM g.updated_at) * 1000000)::bigint, g.is_title, g.hits,
        m.id, m.seq, m.role, m.parts, m.created_us, (
            SELECT array_agg(h.part) FROM threadline.hidden_parts h
            WHERE h.tenant_id = _tenant AND h.timeline_id = m.timeline_id AND h.seq = m.seq
        )
    FROM page g
    LEFT JOIN LATERAL (
        SELECT s.timeline_id, s.seq, s.place FROM shown s WHERE s.thread_id = g.id ORDER BY s.place LIMIT _passages
    ) best ON true
    LEFT JOIN threadline.messages m
        ON m.tenant_id = _tenant AND m.timeline_id = best.timeline_id AND m.seq = best.seq
    ORDER BY g.place, best.place;
END $$;

-- Threads whose present title is not indexed.
CREATE FUNCTION threadline.unindexed_titles(_tenant text, _limit integer) RETURNS TABLE (thread_id text, title text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT t.id, t.title FROM threadline.threads t
        WHERE t.tenant_id = _tenant AND t.title IS DISTINCT FROM t.indexed_title
        ORDER BY t.id LIMIT _limit;
END $$;

-- Writes the words of titles, each as one text; null removes them. A title that changed since it was read is left for
-- the next call.
CREATE FUNCTION threadline.index_titles(_tenant text, _threads text[], _titles text[], _words text[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM threadline.threads t WHERE t.tenant_id = _tenant AND t.id = ANY (_threads)
    ORDER BY t.id FOR NO KEY UPDATE;
    DELETE FROM threadline.title_search s WHERE s.tenant_id = _tenant AND s.thread_id = ANY (_threads);
    INSERT INTO threadline.title_search (tenant_id, thread_id, owner_id, words)
    SELECT _tenant, t.id, t.owner_id,
        array_to_tsvector(threadline.owner_mark(_tenant, t.owner_id) || string_to_array(g.words, ' '))
    FROM unnest(_threads, _titles, _words) AS g (thread_id, title, words)
    JOIN threadline.threads t ON t.tenant_id = _tenant AND t.id = g.thread_id AND t.title = g.title
    WHERE g.words <> '';
    UPDATE threadline.threads t SET indexed_title = g.title
    FROM unnest(_threads, _titles) AS g (thread_id, title)
    WHERE t.tenant_id = _tenant AND t.id = g.thread_id AND t.title IS NOT DISTINCT FROM g.title;
END $$;
