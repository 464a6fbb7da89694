CREATE FUNCTION threadline.owned_tables() RETURNS text[] LANGUAGE sql IMMUTABLE RETURN ARRAY[
    'turn_chunks', 'tool_runs', 'turns', 'summaries', 'saved_points', 'append_keys', 'bindings', 'messages',
    'timelines', 'threads', 'context_snapshots', 'links', 'link_codes', 'inbox', 'outbox', 'api_tokens'
];

-- Tables of the whole tenant, likewise in an order that the foreign keys allow.
CREATE FUNCTION threadline.shared_tables() RETURNS text[] LANGUAGE sql IMMUTABLE RETURN ARRAY[
    'credentials', 'agents', 'audit', 'users', 'tenants'
];

-- Removes what a timeline holds above _top.
CREATE FUNCTION threadline.trim_timeline(_tenant text, _timeline text, _top integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM threadline.message_search s
    WHERE s.tenant_id = _tenant AND s.timeline_id = _timeline AND s.seq > _top;
    DELETE FROM threadline.summaries s WHERE s.tenant_id = _tenant AND s.timeline_id = _timeline AND s.seq > _top;
    DELETE FROM threadline.search_backlog b
    WHERE b.tenant_id = _tenant AND b.timeline_id = _timeline AND b.first_seq > _top;
    UPDATE threadline.search_backlog b SET last_seq = _top
    WHERE b.tenant_id = _tenant AND b.timeline_id = _timeline AND b.last_seq > _top;
    DELETE FROM threadline.messages m WHERE m.tenant_id = _tenant AND m.timeline_id = _timeline AND m.seq > _top;
END $$;

-- Timelines of the owner that no thread stands on or stood on: those from which nothing forks go, and then perhaps those
-- they forked from; the others keep what their forks show of them. Each is locked before its forks are looked for, so
-- that none is being made at that moment.
CREATE FUNCTION threadline.collect_timelines(_tenant text, _owner text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    line text;
    top integer;
    removed boolean := true;
BEGIN
    WHILE removed LOOP
        removed := false;
        FOR line IN
            SELECT l.id FROM threadline.timelines l
            WHERE l.tenant_id = _tenant AND l.owner_id = _owner AND l.thread_id IS NULL ORDER BY l.id FOR UPDATE
        LOOP
            SELECT max(fork.nearest_seqs[1]) INTO top FROM threadline.timelines fork
            WHERE fork.tenant_id = _tenant AND cardinality(fork.nearest) > 0 AND fork.nearest[1] = line;
            PERFORM threadline.trim_timeline(_tenant, line, coalesce(top, -1));
            IF top IS NULL THEN
                DELETE FROM threadline.timelines l WHERE l.tenant_id = _tenant AND l.id = line;
                removed := true;
            END IF;
        END LOOP;
    END LOOP;
END $$;

-- Threads, deleted or not, with all that hangs on them. How many there were.
CREATE FUNCTION threadline.purge_threads(_tenant text, _ids text[]) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    thread threadline.threads;
    purged integer := 0;
BEGIN
    FOR thread IN
        SELECT * FROM threadline.threads t WHERE t.tenant_id = _tenant AND t.id = ANY (_ids) ORDER BY t.id FOR UPDATE
    LOOP
        DELETE FROM threadline.turn_chunks c USING threadline.turns u
        WHERE u.tenant_id = _tenant AND u.thread_id = thread.id AND c.tenant_id = _tenant AND c.turn_id = u.id;
        DELETE FROM threadline.tool_runs r USING threadline.turns u
        WHERE u.tenant_id = _tenant AND u.thread_id = thread.id AND r.tenant_id = _tenant AND r.turn_id = u.id;
        DELETE FROM threadline.turns u WHERE u.tenant_id = _tenant AND u.thread_id = thread.id;
        DELETE FROM threadline.bindings b WHERE b.tenant_id = _tenant AND b.thread_id = thread.id;
        DELETE FROM threadline.saved_points s WHERE s.tenant_id = _tenant AND s.thread_id = thread.id;
        DELETE FROM threadline.append_keys k WHERE k.tenant_id = _tenant AND k.thread_id = thread.id;
        -- What search has not read yet may be shown by a branch.
        INSERT INTO threadline.search_backlog (tenant_id, owner_id, timeline_id, first_seq, last_seq)
        SELECT _tenant, thread.owner_id, thread.timeline_id, thread.indexed_count, thread.message_count - 1
        WHERE thread.indexed_count < thread.message_count
        ON CONFLICT DO NOTHING;
        UPDATE threadline.timelines l SET thread_id = NULL WHERE l.tenant_id = _tenant AND l.thread_id = thread.id;
        DELETE FROM threadline.threads t WHERE t.tenant_id = _tenant AND t.id = thread.id;
        PERFORM threadline.collect_timelines(_tenant, thread.owner_id);
        purged := purged + 1;
    END LOOP;
    RETURN purged;
END $$;

-- Nobody adds anything for the owner, or for anybody in the tenant, until this transaction ends. Whoever is about to is
-- waited for, and what they added is seen by what follows: to a thread through its row, a new thread through its owner's,
-- which it refers to. The second time finds threads that came before their owner was held.
CREATE FUNCTION threadline.hold(_tenant text, _owner text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR time IN 1..2 LOOP
        PERFORM FROM threadline.threads t
        WHERE t.tenant_id = _tenant AND (_owner IS NULL OR t.owner_id = _owner) ORDER BY t.id FOR UPDATE;
        PERFORM FROM threadline.users u
        WHERE u.tenant_id = _tenant AND (_owner IS NULL OR u.id = _owner) ORDER BY u.id FOR UPDATE;
        PERFORM FROM threadline.tenants t WHERE t.tenant_id = _tenant AND _owner IS NULL FOR UPDATE;
    END LOOP;
END $$;

-- Everything of one owner. How many rows, those apart that search derived from messages.
CREATE FUNCTION threadline.purge_owner(_tenant text, _owner text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    tablename text;
    removed bigint;
    total bigint := 0;
BEGIN
    PERFORM threadline.hold(_tenant, _owner);
    DELETE FROM threadline.message_search s WHERE s.tenant_id = _tenant AND s.owner_id = _owner;
    DELETE FROM threadline.search_backlog b WHERE b.tenant_id = _tenant AND b.owner_id = _owner;
    FOREACH tablename IN ARRAY threadline.owned_tables() LOOP
        EXECUTE format('DELETE FROM threadline.%I WHERE tenant_id = $1 AND owner_id = $2', tablename)
        USING _tenant, _owner;
        GET DIAGNOSTICS removed = ROW_COUNT;
        total := total + removed;
    END LOOP;
    DELETE FROM threadline.users u WHERE u.tenant_id = _tenant AND u.id = _owner;
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN total + removed;
END $$;

-- Everything of the tenant. How many rows, counted likewise.
CREATE FUNCTION threadline.purge_tenant(_tenant text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    tablename text;
    removed bigint;
    total bigint := 0;
BEGIN
    PERFORM threadline.hold(_tenant, NULL);
    DELETE FROM threadline.message_search s WHERE s.tenant_id = _tenant;
    DELETE FROM threadline.search_backlog b WHERE b.tenant_id = _tenant;
    DELETE FROM threadline.permits p WHERE p.tenant_id = _tenant;
    FOREACH tablename IN ARRAY threadline.owned_tables() || threadline.shared_tables() LOOP
        EXECUTE format('DELETE FROM threadline.%I WHERE tenant_id = $1', tablename) USING _tenant;
        GET DIAGNOSTICS removed = ROW_COUNT;
        total := total + removed;
    END LOOP;
    RETURN total;
END $$;

-- Rows by table that this transaction may see, counted likewise.
CREATE FUNCTION threadline.count_rows(_tenant text) RETURNS TABLE (tablename text, counted bigint)
LANGUAGE plpgsql AS $$
BEGIN
    FOREACH tablename IN ARRAY threadline.owned_tables() || threadline.shared_tables() LOOP
        EXECUTE format('SELECT count(*) FROM threadline.%I WHERE tenant_id = $1', tablename) INTO counted USING _tenant;
        RETURN NEXT;
    END LOOP;
END $$;
