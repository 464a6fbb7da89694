-- Tables whose rows belong to an owner, in an order that the foreign keys allow.
CREATE FUNCTION threadline.owned_tables() RETURNS text[] LANGUAGE sql IMMUTABLE RETURN ARRAY[
    'turn_chunks', 'tool_runs', 'turns', 'summaries', 'hidden_parts', 'saved_points', 'append_keys', 'bindings', 'messages',
    'timelines', 'stored_values', 'threads', 'context_snapshots', 'links', 'link_codes', 'inbox', 'outbox', 'api_tokens',
    'sign_ins', 'usage_days'
];

-- Tables of the whole tenant, in an order that the foreign keys allow.
CREATE FUNCTION threadline.shared_tables() RETURNS text[] LANGUAGE sql IMMUTABLE RETURN ARRAY[
    'credentials', 'agents', 'legal_holds', 'audit', 'users', 'tenants'
];

-- Removes the messages of a timeline above _top, with what belongs to them.
CREATE FUNCTION threadline.trim_timeline(_tenant text, _timeline text, _top integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM threadline.message_search s
    WHERE s.tenant_id = _tenant AND s.timeline_id = _timeline AND s.seq > _top;
    DELETE FROM threadline.summaries s WHERE s.tenant_id = _tenant AND s.timeline_id = _timeline AND s.seq > _top;
    DELETE FROM threadline.hidden_parts h WHERE h.tenant_id = _tenant AND h.timeline_id = _timeline AND h.seq > _top;
    DELETE FROM threadline.search_backlog b
    WHERE b.tenant_id = _tenant AND b.timeline_id = _timeline AND b.first_seq > _top;
    UPDATE threadline.search_backlog b SET last_seq = _top
    WHERE b.tenant_id = _tenant AND b.timeline_id = _timeline AND b.last_seq > _top;
    DELETE FROM threadline.messages m WHERE m.tenant_id = _tenant AND m.timeline_id = _timeline AND m.seq > _top;
END $$;

-- Timelines of the owner whose thread was purged: those without forks are removed, which may leave their parents without
-- forks; the others keep the messages that their forks show. Each is locked before its forks are read, so that no fork is
-- added at the same time.
CREATE FUNCTION threadline.remove_unused_timelines(_tenant text, _owner text) RETURNS void LANGUAGE plpgsql AS $$
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

-- Removes threads, deleted or not, with everything that belongs to them. Returns their number.
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
        DELETE FROM threadline.stored_values v
        WHERE v.tenant_id = _tenant AND v.scope = 'thread' AND v.scope_id = thread.id;
        -- A branch may show messages of this thread that are not indexed yet.
        INSERT INTO threadline.search_backlog (tenant_id, owner_id, timeline_id, first_seq, last_seq)
        SELECT _tenant, thread.owner_id, thread.timeline_id, thread.indexed_count, thread.message_count - 1
        WHERE thread.indexed_count < thread.message_count
        ON CONFLICT DO NOTHING;
        DELETE FROM threadline.thread_labels f WHERE f.tenant_id = _tenant AND f.thread_id = thread.id;
        UPDATE threadline.timelines l SET thread_id = NULL WHERE l.tenant_id = _tenant AND l.thread_id = thread.id;
        DELETE FROM threadline.threads t WHERE t.tenant_id = _tenant AND t.id = thread.id;
        PERFORM threadline.remove_unused_timelines(_tenant, thread.owner_id);
        purged := purged + 1;
    END LOOP;
    RETURN purged;
END $$;

-- Removes an owner's threads that have been empty since _idle_since and have no history to show.
CREATE FUNCTION threadline.prune_threads(_tenant text, _owner text, _idle_since timestamptz) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    pruned text[];
BEGIN
    SELECT array_agg(t.id) INTO pruned FROM threadline.threads t
    WHERE t.tenant_id = _tenant AND t.owner_id = _owner AND t.deleted_at IS NULL AND t.message_count = 0
        AND t.updated_at < _idle_since AND NOT EXISTS (
            SELECT FROM threadline.timelines l
            WHERE l.tenant_id = _tenant AND l.thread_id = t.id AND (
                cardinality(l.nearest) > 0
                OR EXISTS (SELECT FROM threadline.messages m WHERE m.tenant_id = _tenant AND m.timeline_id = l.id)
            )
        );
    RETURN threadline.purge_threads(_tenant, pruned);
END $$;

-- Locks the owner, or without one the tenant, against additions until this transaction ends: additions to a thread lock
-- its row, and a new thread locks its owner's row through the foreign key. Waits for running ones, which the following
-- statements then see. The second pass locks threads that were added before their owner was locked.
CREATE FUNCTION threadline.lock_for_purge(_tenant text, _owner text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR pass IN 1..2 LOOP
        PERFORM FROM threadline.threads t
        WHERE t.tenant_id = _tenant AND (_owner IS NULL OR t.owner_id = _owner) ORDER BY t.id FOR UPDATE;
        PERFORM FROM threadline.users u
        WHERE u.tenant_id = _tenant AND (_owner IS NULL OR u.id = _owner) ORDER BY u.id FOR UPDATE;
        PERFORM FROM threadline.tenants t WHERE t.tenant_id = _tenant AND _owner IS NULL FOR UPDATE;
    END LOOP;
END $$;

-- Removes everything of one owner. Returns the number of rows of each table, without the search index.
CREATE FUNCTION threadline.purge_owner(_tenant text, _owner text)
RETURNS TABLE (tablename text, removed bigint) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM threadline.lock_for_purge(_tenant, _owner);
    DELETE FROM threadline.message_search s WHERE s.tenant_id = _tenant AND s.owner_id = _owner;
    DELETE FROM threadline.search_backlog b WHERE b.tenant_id = _tenant AND b.owner_id = _owner;
    DELETE FROM threadline.thread_labels f WHERE f.tenant_id = _tenant AND f.owner_id = _owner;
    FOREACH tablename IN ARRAY threadline.owned_tables() LOOP
        EXECUTE format('DELETE FROM threadline.%I WHERE tenant_id = $1 AND owner_id = $2', tablename)
        USING _tenant, _owner;
        GET DIAGNOSTICS removed = ROW_COUNT;
        RETURN NEXT;
    END LOOP;
    DELETE FROM threadline.users u WHERE u.tenant_id = _tenant AND u.id = _owner;
    GET DIAGNOSTICS removed = ROW_COUNT;
    tablename := 'users';
    RETURN NEXT;
END $$;

-- Removes everything of the tenant. Returns the number of rows as above.
CREATE FUNCTION threadline.purge_tenant(_tenant text)
RETURNS TABLE (tablename text, removed bigint) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM threadline.lock_for_purge(_tenant, NULL);
    DELETE FROM threadline.message_search s WHERE s.tenant_id = _tenant;
    DELETE FROM threadline.search_backlog b WHERE b.tenant_id = _tenant;
    DELETE FROM threadline.thread_labels f WHERE f.tenant_id = _tenant;
    DELETE FROM threadline.permits p WHERE p.tenant_id = _tenant;
    FOREACH tablename IN ARRAY threadline.owned_tables() || threadline.shared_tables() LOOP
        EXECUTE format('DELETE FROM threadline.%I WHERE tenant_id = $1', tablename) USING _tenant;
        GET DIAGNOSTICS removed = ROW_COUNT;
        RETURN NEXT;
    END LOOP;
END $$;

-- The number of rows per table that this transaction may see.
CREATE FUNCTION threadline.count_rows(_tenant text) RETURNS TABLE (tablename text, counted bigint)
LANGUAGE plpgsql AS $$
BEGIN
    FOREACH tablename IN ARRAY threadline.owned_tables() || threadline.shared_tables() LOOP
        EXECUTE format('SELECT count(*) FROM threadline.%I WHERE tenant_id = $1', tablename) INTO counted USING _tenant;
        RETURN NEXT;
    END LOOP;
END $$;
