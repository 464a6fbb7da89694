-- By id; without an id, by state key.
CREATE FUNCTION threadline.find_thread(
    _tenant text, _owner text, _role text, _id text, _state_key text, _deleted boolean
) RETURNS SETOF threadline.thread_columns LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
BEGIN
    IF _id IS NOT NULL THEN
        RETURN QUERY SELECT t.id, t.owner_id, t.state_key, t.timeline_id, t.title, t.title_by_person, t.agent_id, t.model,
            t.system_prompt, t.working_dir, t.metadata, t.message_count, t.token_count, t.created_at, t.updated_at,
            t.archived_at, t.deleted_at
            FROM threadline.threads t
            WHERE t.tenant_id = _tenant AND t.id = _id AND (_deleted OR t.deleted_at IS NULL);
    ELSE
        RETURN QUERY SELECT t.id, t.owner_id, t.state_key, t.timeline_id, t.title, t.title_by_person, t.agent_id, t.model,
            t.system_prompt, t.working_dir, t.metadata, t.message_count, t.token_count, t.created_at, t.updated_at,
            t.archived_at, t.deleted_at
            FROM threadline.threads t
            WHERE t.tenant_id = _tenant AND t.owner_id = _owner AND t.state_key = _state_key AND t.deleted_at IS NULL;
    END IF;
END $$;

-- Latest activity first, after the last thread of the previous page. Two statements, because each has its own index.
CREATE FUNCTION threadline.list_threads(
    _tenant text, _owner text, _role text,
    _limit integer, _offset integer, _below_us bigint, _below_id text, _archived boolean, _deleted boolean
) RETURNS SETOF threadline.thread_columns LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    below_at constant timestamptz := coalesce(threadline.from_us(_below_us), 'infinity');
    below_id constant text := coalesce(_below_id, '');
BEGIN
    IF _deleted THEN
        RETURN QUERY SELECT t.id, t.owner_id, t.state_key, t.timeline_id, t.title, t.title_by_person, t.agent_id, t.model,
            t.system_prompt, t.working_dir, t.metadata, t.message_count, t.token_count, t.created_at, t.updated_at,
            t.archived_at, t.deleted_at
            FROM threadline.threads t
            WHERE t.tenant_id = _tenant AND t.owner_id = _owner AND t.deleted_at IS NOT NULL
                AND (t.updated_at, t.id) < (below_at, below_id)
                AND (_archived IS NULL OR (t.archived_at IS NOT NULL) = _archived)
            ORDER BY t.updated_at DESC, t.id DESC LIMIT _limit OFFSET _offset;
    ELSE
        RETURN QUERY SELECT t.id, t.owner_id, t.state_key, t.timeline_id, t.title, t.title_by_person, t.agent_id, t.model,
            t.system_prompt, t.working_dir, t.metadata, t.message_count, t.token_count, t.created_at, t.updated_at,
            t.archived_at, t.deleted_at
            FROM threadline.threads t
            WHERE t.tenant_id = _tenant AND t.owner_id = _owner AND t.deleted_at IS NULL
                AND (t.updated_at, t.id) < (below_at, below_id)
                AND (_archived IS NULL OR (t.archived_at IS NOT NULL) = _archived)
            ORDER BY t.updated_at DESC, t.id DESC LIMIT _limit OFFSET _offset;
    END IF;
END $$;

-- problem: the 'thread' id or the 'state_key' is in use.
CREATE FUNCTION threadline.create_thread(
    _tenant text, _owner text, _role text, _now_us bigint, _new threadline.thread_args,
    OUT problem text, OUT result threadline.threads
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    added boolean;
BEGIN
    PERFORM threadline.ensure_user(_tenant, _owner, _now_us);
    INSERT INTO threadline.threads (
        tenant_id, id, owner_id, state_key, timeline_id, title, title_by_person, agent_id, model, system_prompt,
        working_dir, metadata, created_at, updated_at
    ) VALUES (
        _tenant, _new.id, _owner, _new.state_key, _new.timeline_id, _new.title, _new.title_by_person, _new.agent_id,
        _new.model, _new.system_prompt, _new.working_dir, _new.metadata, threadline.from_us(_now_us),
        threadline.from_us(_now_us)
    ) ON CONFLICT DO NOTHING RETURNING * INTO result;
    IF NOT FOUND THEN
        problem := threadline.find_conflict(_tenant, _owner, _new.state_key);
    ELSE
        added := threadline.add_timeline(
            _tenant, _now_us, _new.timeline_id, _owner, _new.id, NULL, NULL, NULL, NULL
        );
        IF result.metadata IS NOT NULL OR result.agent_id IS NOT NULL THEN
            added := threadline.label_thread(_tenant, _owner, result.id, result.agent_id, result.metadata);
        END IF;
    END IF;
END $$;

-- A new thread with the history of another one up to a seq. problem: as above, or the 'source' does not exist, or its
-- history has no such 'seq'. The lock on the source's timeline keeps a purge from removing what the branch shows.
CREATE FUNCTION threadline.branch_thread(
    _tenant text, _owner text, _role text, _now_us bigint, _new threadline.thread_args, _source text, _at integer,
    OUT problem text, OUT result threadline.threads
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    source record;
    added boolean;
BEGIN
    SELECT t.owner_id, t.message_count, t.agent_id, t.model, t.system_prompt, t.working_dir, l.id, l.ancestors,
        l.ancestor_seqs
    INTO source
    FROM threadline.threads t JOIN threadline.timelines l ON l.tenant_id = _tenant AND l.id = t.timeline_id
    WHERE t.tenant_id = _tenant AND t.id = _source AND t.deleted_at IS NULL
    FOR KEY SHARE OF t, l;
    problem := CASE WHEN NOT FOUND THEN 'source' WHEN _at < -1 OR _at >= source.message_count THEN 'seq' END;
    IF problem IS NOT NULL THEN
        RETURN;
    END IF;
    _at := coalesce(_at, source.message_count - 1);
    INSERT INTO threadline.threads (
        tenant_id, id, owner_id, state_key, timeline_id, title, title_by_person, agent_id, model, system_prompt,
        working_dir, metadata, message_count, indexed_count, created_at, updated_at
    ) VALUES (
        _tenant, _new.id, source.owner_id, _new.state_key, _new.timeline_id, _new.title, _new.title_by_person,
        coalesce(_new.agent_id, source.agent_id), coalesce(_new.model, source.model),
        coalesce(_new.system_prompt, source.system_prompt), coalesce(_new.working_dir, source.working_dir),
        _new.metadata, _at + 1, _at + 1, threadline.from_us(_now_us), threadline.from_us(_now_us)
    ) ON CONFLICT DO NOTHING RETURNING * INTO result;
    IF NOT FOUND THEN
        problem := threadline.find_conflict(_tenant, source.owner_id, _new.state_key);
    ELSE
        added := threadline.add_timeline(
            _tenant, _now_us, _new.timeline_id, source.owner_id, _new.id, source.id, _at, source.ancestors,
            source.ancestor_seqs
        );
        IF result.metadata IS NOT NULL OR result.agent_id IS NOT NULL THEN
            added := threadline.label_thread(_tenant, result.owner_id, result.id, result.agent_id, result.metadata);
        END IF;
    END IF;
END $$;

-- What a new thread conflicts with: the 'state_key' of a thread that is not deleted, or else a 'thread' with its id.
CREATE FUNCTION threadline.find_conflict(_tenant text, _owner text, _state_key text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    problem text;
BEGIN
    SELECT CASE WHEN count(*) > 0 THEN 'state_key' ELSE 'thread' END INTO problem FROM threadline.threads t
    WHERE t.tenant_id = _tenant AND t.owner_id = _owner AND t.state_key = _state_key AND t.deleted_at IS NULL;
    RETURN problem;
END $$;

CREATE FUNCTION threadline.find_live_thread(_tenant text, _thread text) RETURNS threadline.threads LANGUAGE plpgsql AS $$
DECLARE
    result threadline.threads;
BEGIN
    SELECT * INTO result FROM threadline.threads t
    WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL;
    RETURN result;
END $$;
