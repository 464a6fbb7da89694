-- What was used, in one row for each day, owner, agent, provider, model and kind.

-- Adds what a turn, a summary or a title used to the count of its day. Turns of one user share a row, so this is the last thing that a transaction does.
CREATE FUNCTION threadline.add_usage(_tenant text, _owner text, _given threadline.turn_completion) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO threadline.usage_days AS u (tenant_id, owner_id, day, agent_id, provider, model, turns, input_tokens,
        output_tokens, cached_tokens, reasoning_tokens, cost_nanos, kind)
    VALUES (_tenant, _owner, _given.day, _given.used_agent_id, coalesce(_given.provider, ''),
        coalesce(_given.model, ''), _given.turns, _given.input_tokens, _given.output_tokens, _given.cached_tokens,
        _given.reasoning_tokens, _given.cost_nanos, _given.kind)
    ON CONFLICT (tenant_id, owner_id, day, agent_id, provider, model, kind) DO UPDATE SET turns = u.turns + excluded.turns,
        input_tokens = u.input_tokens + excluded.input_tokens,
        output_tokens = u.output_tokens + excluded.output_tokens,
        cached_tokens = u.cached_tokens + excluded.cached_tokens,
        reasoning_tokens = u.reasoning_tokens + excluded.reasoning_tokens,
        cost_nanos = CASE
            WHEN excluded.cost_nanos IS NULL THEN u.cost_nanos
            ELSE coalesce(u.cost_nanos, 0) + excluded.cost_nanos
        END;
END $$;

-- What was used outside a turn. _charge has the fields of a turn_completion that are about usage.
CREATE FUNCTION threadline.count_usage(_tenant text, _owner text, _role text, _now_us bigint, _charge jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    given constant threadline.turn_completion := jsonb_populate_record(NULL::threadline.turn_completion, _charge);
BEGIN
    PERFORM threadline.ensure_user(_tenant, _owner, _now_us);
    PERFORM threadline.add_usage(_tenant, _owner, given);
END $$;

-- Sums over days, both inclusive. Columns that are not grouped by are null. Without _user the rows are those that the
-- role sees: the tenant's for the worker, their own for an owner.
CREATE FUNCTION threadline.sum_usage(
    _tenant text, _first integer, _last integer, _user text, _agent text,
    _by_day boolean, _by_user boolean, _by_agent boolean, _by_model boolean, _by_kind boolean
) RETURNS TABLE (
    day integer, user_id text, agent_id text, provider text, model text, kind text, turns bigint, input_tokens bigint,
    output_tokens bigint, cached_tokens bigint, reasoning_tokens bigint, cost_nanos bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    IF _user IS NULL THEN
        RETURN QUERY SELECT CASE WHEN _by_day THEN u.day END, CASE WHEN _by_user THEN u.owner_id END,
            CASE WHEN _by_agent THEN u.agent_id END, CASE WHEN _by_model THEN u.provider END,
            CASE WHEN _by_model THEN u.model END, CASE WHEN _by_kind THEN u.kind END, sum(u.turns)::bigint, sum(u.input_tokens)::bigint,
            sum(u.output_tokens)::bigint, sum(u.cached_tokens)::bigint, sum(u.reasoning_tokens)::bigint,
            sum(u.cost_nanos)::bigint
        FROM threadline.usage_days u
        WHERE u.tenant_id = _tenant AND u.day BETWEEN _first AND _last AND (_agent IS NULL OR u.agent_id = _agent)
        GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6;
    ELSE
        RETURN QUERY SELECT CASE WHEN _by_day THEN u.day END, CASE WHEN _by_user THEN u.owner_id END,
            CASE WHEN _by_agent THEN u.agent_id END, CASE WHEN _by_model THEN u.provider END,
            CASE WHEN _by_model THEN u.model END, CASE WHEN _by_kind THEN u.kind END, sum(u.turns)::bigint, sum(u.input_tokens)::bigint,
            sum(u.output_tokens)::bigint, sum(u.cached_tokens)::bigint, sum(u.reasoning_tokens)::bigint,
            sum(u.cost_nanos)::bigint
        FROM threadline.usage_days u
        -- The addition keeps the planner from the index by day, which would read the days of every user.
        WHERE u.tenant_id = _tenant AND u.owner_id = _user AND u.day + 0 BETWEEN _first AND _last
            AND (_agent IS NULL OR u.agent_id = _agent)
        GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6;
    END IF;
END $$;

CREATE FUNCTION threadline.read_usage(
    _tenant text, _owner text, _role text, _first integer, _last integer, _user text, _agent text,
    _by_day boolean, _by_user boolean, _by_agent boolean, _by_model boolean, _by_kind boolean
) RETURNS TABLE (
    day integer, user_id text, agent_id text, provider text, model text, kind text, turns bigint, input_tokens bigint,
    output_tokens bigint, cached_tokens bigint, reasoning_tokens bigint, cost_nanos bigint
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
BEGIN
    RETURN QUERY SELECT * FROM threadline.sum_usage(
        _tenant, _first, _last, _user, _agent, _by_day, _by_user, _by_agent, _by_model, _by_kind
    );
END $$;
