-- Writes the labels of a thread: its agent, the plain values at the top of its metadata, its tags.
CREATE FUNCTION threadline.label_thread(_tenant text, _owner text, _thread text, _agent text, _metadata bytea)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    given json;
BEGIN
    DELETE FROM threadline.thread_labels f WHERE f.tenant_id = _tenant AND f.thread_id = _thread;
    IF _agent IS NOT NULL THEN
        INSERT INTO threadline.thread_labels (tenant_id, label, owner_id, thread_id)
        VALUES (_tenant, 'a' || _agent, _owner, _thread);
    END IF;
    IF _metadata IS NULL THEN
        RETURN true;
    END IF;
    given := convert_from(_metadata, 'UTF8')::json;
    INSERT INTO threadline.thread_labels (tenant_id, label, owner_id, thread_id)
    SELECT _tenant, CASE json_typeof(m.value) WHEN 'string' THEN 's' WHEN 'number' THEN 'i' WHEN 'null' THEN 'n' ELSE 'b' END
            || m.key || chr(31) || coalesce(m.value #>> '{}', ''),
        _owner, _thread
    FROM json_each(given) m
    WHERE length(m.key) + length(coalesce(m.value #>> '{}', '')) <= 200
        AND (json_typeof(m.value) IN ('string', 'boolean', 'null') OR m.value::text ~ '^-?[0-9]{1,15}$')
    LIMIT 100
    ON CONFLICT DO NOTHING;
    IF json_typeof(given -> 'tags') = 'array' THEN
        INSERT INTO threadline.thread_labels (tenant_id, label, owner_id, thread_id)
        SELECT _tenant, 't' || (g.value #>> '{}'), _owner, _thread FROM json_array_elements(given -> 'tags') g
        WHERE json_typeof(g.value) = 'string' AND length(g.value #>> '{}') <= 200
        LIMIT 100
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN true;
END $$;

-- The same for threads that were copied from another database.
CREATE FUNCTION threadline.label_threads(_tenant text, _threads text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    copied record;
BEGIN
    FOR copied IN
        SELECT t.id, t.owner_id, t.agent_id, t.metadata FROM threadline.threads t
        WHERE t.tenant_id = _tenant AND t.id = ANY (_threads) AND (t.metadata IS NOT NULL OR t.agent_id IS NOT NULL)
    LOOP
        PERFORM threadline.label_thread(_tenant, copied.owner_id, copied.id, copied.agent_id, copied.metadata);
    END LOOP;
END $$;

CREATE FUNCTION threadline.has_labels(_tenant text, _owner text, _thread text, _labels text[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY _labels LOOP
        PERFORM FROM threadline.thread_labels f
        WHERE f.tenant_id = _tenant AND f.label = wanted AND f.owner_id = _owner AND f.thread_id = _thread;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END $$;

-- The label that the fewest threads of the owner have (of the tenant, without an owner); null if each of them is on more
-- than 2,000: then a walk along the list finds matching threads soon.
CREATE FUNCTION threadline.find_rare_label(_tenant text, _owner text, _labels text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    wanted text;
    rare text;
    counted bigint;
    fewest bigint := 2001;
BEGIN
    FOREACH wanted IN ARRAY _labels LOOP
        SELECT count(*) INTO counted FROM (
            SELECT FROM threadline.thread_labels f
            WHERE f.tenant_id = _tenant AND f.label = wanted AND (_owner IS NULL OR f.owner_id = _owner) LIMIT 2001
        ) labelled;
        IF counted < fewest THEN
            fewest := counted;
            rare := wanted;
        END IF;
    END LOOP;
    RETURN rare;
END $$;

-- list_threads with a filter. A rare label is looked up; otherwise the list is walked.
CREATE FUNCTION threadline.filter_threads(
    _tenant text, _owner text, _role text,
    _limit integer, _offset integer, _below_us bigint, _below_id text, _archived boolean, _deleted boolean,
    _labels text[], _surface text, _since_us bigint, _until_us bigint
) RETURNS SETOF threadline.thread_columns LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    below_at constant timestamptz := least(
        coalesce(threadline.from_us(_below_us), 'infinity'), coalesce(threadline.from_us(_until_us), 'infinity')
    );
    below_id constant text := CASE WHEN _until_us <= coalesce(_below_us, _until_us) THEN '' ELSE coalesce(_below_id, '') END;
    since_at constant timestamptz := coalesce(threadline.from_us(_since_us), '-infinity');
    rare constant text := threadline.find_rare_label(_tenant, _owner, _labels);
    candidates text[];
BEGIN
    IF rare IS NOT NULL THEN
        SELECT coalesce(array_agg(f.thread_id), '{}') INTO candidates FROM threadline.thread_labels f
        WHERE f.tenant_id = _tenant AND f.label = rare AND f.owner_id = _owner;
        RETURN QUERY SELECT t.id, t.owner_id, t.state_key, t.timeline_id, t.title, t.title_by_person, t.agent_id, t.model,
            t.system_prompt, t.working_dir, t.metadata, t.message_count, t.token_count, t.created_at, t.updated_at,
            t.archived_at, t.deleted_at
            FROM threadline.threads t
            WHERE t.tenant_id = _tenant AND t.id = ANY (candidates) AND (t.deleted_at IS NOT NULL) = _deleted
                AND (_archived IS NULL OR (t.archived_at IS NOT NULL) = _archived)
                AND (t.updated_at, t.id) < (below_at, below_id) AND t.updated_at >= since_at
                AND (_surface IS NULL OR EXISTS (
                    SELECT FROM threadline.turns r WHERE r.tenant_id = _tenant AND r.owner_id = _owner
                        AND r.surface = _surface AND r.thread_id = t.id
                )) AND threadline.has_labels(_tenant, _owner, t.id, _labels)
            ORDER BY t.updated_at DESC, t.id DESC LIMIT _limit OFFSET _offset;
    ELSIF _deleted THEN
        RETURN QUERY SELECT t.id, t.owner_id, t.state_key, t.timeline_id, t.title, t.title_by_person, t.agent_id, t.model,
            t.system_prompt, t.working_dir, t.metadata, t.message_count, t.token_count, t.created_at, t.updated_at,
            t.archived_at, t.deleted_at
            FROM threadline.threads t
            WHERE t.tenant_id = _tenant AND t.owner_id = _owner AND t.deleted_at IS NOT NULL
                AND (_archived IS NULL OR (t.archived_at IS NOT NULL) = _archived)
                AND (t.updated_at, t.id) < (below_at, below_id) AND t.updated_at >= since_at
                AND (_surface IS NULL OR EXISTS (
                    SELECT FROM threadline.turns r WHERE r.tenant_id = _tenant AND r.owner_id = _owner
                        AND r.surface = _surface AND r.thread_id = t.id
                )) AND threadline.has_labels(_tenant, _owner, t.id, _labels)
            ORDER BY t.updated_at DESC, t.id DESC LIMIT _limit OFFSET _offset;
    ELSE
        RETURN QUERY SELECT t.id, t.owner_id, t.state_key, t.timeline_id, t.title, t.title_by_person, t.agent_id, t.model,
            t.system_prompt, t.working_dir, t.metadata, t.message_count, t.token_count, t.created_at, t.updated_at,
            t.archived_at, t.deleted_at
            FROM threadline.threads t
            WHERE t.tenant_id = _tenant AND t.owner_id = _owner AND t.deleted_at IS NULL
                AND (_archived IS NULL OR (t.archived_at IS NOT NULL) = _archived)
                AND (t.updated_at, t.id) < (below_at, below_id) AND t.updated_at >= since_at
                AND (_surface IS NULL OR EXISTS (
                    SELECT FROM threadline.turns r WHERE r.tenant_id = _tenant AND r.owner_id = _owner
                        AND r.surface = _surface AND r.thread_id = t.id
                )) AND threadline.has_labels(_tenant, _owner, t.id, _labels)
            ORDER BY t.updated_at DESC, t.id DESC LIMIT _limit OFFSET _offset;
    END IF;
END $$;

-- The threads of every owner of the tenant, the greatest id first, below an id. For administrators.
CREATE FUNCTION threadline.list_tenant_threads(
    _tenant text, _owner text, _role text, _limit integer, _below_id text, _archived boolean, _deleted boolean,
    _labels text[], _surface text, _since_us bigint, _until_us bigint
) RETURNS SETOF threadline.thread_columns LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    rare constant text := threadline.find_rare_label(_tenant, NULL, _labels);
    candidates text[];
BEGIN
    IF rare IS NOT NULL THEN
        SELECT coalesce(array_agg(f.thread_id), '{}') INTO candidates FROM threadline.thread_labels f
        WHERE f.tenant_id = _tenant AND f.label = rare;
    END IF;
    RETURN QUERY SELECT t.id, t.owner_id, t.state_key, t.timeline_id, t.title, t.title_by_person, t.agent_id, t.model,
        t.system_prompt, t.working_dir, t.metadata, t.message_count, t.token_count, t.created_at, t.updated_at,
        t.archived_at, t.deleted_at
        FROM threadline.threads t
        WHERE t.tenant_id = _tenant AND (_below_id IS NULL OR t.id < _below_id)
            AND (rare IS NULL OR t.id = ANY (candidates)) AND (t.deleted_at IS NOT NULL) = _deleted
            AND (_archived IS NULL OR (t.archived_at IS NOT NULL) = _archived)
            AND t.updated_at >= coalesce(threadline.from_us(_since_us), '-infinity')
            AND t.updated_at < coalesce(threadline.from_us(_until_us), 'infinity')
            AND (_surface IS NULL OR EXISTS (
                SELECT FROM threadline.turns r WHERE r.tenant_id = _tenant AND r.owner_id = t.owner_id
                    AND r.surface = _surface AND r.thread_id = t.id
            )) AND threadline.has_labels(_tenant, t.owner_id, t.id, _labels)
        ORDER BY t.id DESC LIMIT _limit;
END $$;
