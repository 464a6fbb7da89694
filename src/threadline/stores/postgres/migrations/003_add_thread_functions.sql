-- oldest compatible: 2
--
-- The verbs of every request, each as one function, so that each is one round trip. They run with the caller's rights;
-- their first step enters the scope for the rest of the transaction: role, tenant and owner, as SET LOCAL would. Calls
-- are assignments where they can be: PERFORM costs a statement, which is four times as much.
-- An error the caller may expect is an answer (`problem`), not an exception: an exception would end the transaction
-- around it. Statements are plain and name the tenant, so that Citus can send a whole function to the tenant's node.

-- Plans are made once per connection: left to choose, PostgreSQL would plan an append anew each time, at a third of its
-- cost, because it guesses that an array of ids is longer than it is. And they go by an index, however small a table is
-- when they are made.
CREATE FUNCTION threadline.enter(_tenant text, _owner text, _role text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    said text;
BEGIN
    said := set_config('role', _role, true);
    said := set_config('threadline.tenant', _tenant, true);
    said := set_config('threadline.owner', _owner, true);
    said := set_config('plan_cache_mode', 'force_generic_plan', true);
    said := set_config('enable_seqscan', 'off', true);
    RETURN true;
END $$;

-- STABLE as what it adds up, or it would be called instead of written out.
CREATE FUNCTION threadline.moment(_us bigint) RETURNS timestamptz LANGUAGE sql STABLE
    RETURN timestamptz 'epoch' + _us * interval '1 microsecond';

-- Makes the tenant and the owner known, so that rows can refer to them.
CREATE FUNCTION threadline.introduce(_tenant text, _user text, _now_us bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM threadline.users u WHERE u.tenant_id = _tenant AND u.id = _user) THEN
        RETURN;
    END IF;
    INSERT INTO threadline.tenants (tenant_id, created_at) VALUES (_tenant, threadline.moment(_now_us))
    ON CONFLICT DO NOTHING;
    INSERT INTO threadline.users (tenant_id, id, created_at) VALUES (_tenant, _user, threadline.moment(_now_us))
    ON CONFLICT DO NOTHING;
END $$;

-- What is told of a thread, column by column as it is read: to pick some of a row's columns later took a fifth of the
-- server's time for a list.
CREATE TYPE threadline.shown_thread AS (
    id text, owner_id text, state_key text, timeline_id text, title text, title_by_person boolean, agent_id text,
    model text, system_prompt text, working_dir text, metadata bytea, message_count integer, token_count bigint,
    created_at timestamptz, updated_at timestamptz, archived_at timestamptz, deleted_at timestamptz
);

-- By id, or by state key if there is no id.
CREATE FUNCTION threadline.find_thread(
    _tenant text, _owner text, _role text, _id text, _state_key text, _deleted boolean
) RETURNS SETOF threadline.shown_thread LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
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

-- Latest activity first, below the place where an earlier page ended.
CREATE FUNCTION threadline.list_threads(
    _tenant text, _owner text, _role text,
    _limit integer, _offset integer, _below_us bigint, _below_id text, _archived boolean, _deleted boolean
) RETURNS SETOF threadline.shown_thread LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    below_at constant timestamptz := coalesce(threadline.moment(_below_us), 'infinity');
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
