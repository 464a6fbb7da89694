-- The owner of the values of this scope, null for the tenant's. problem: the 'thread' is not here, or the values are those
-- of another 'user'. A thread is locked for a write, so that a purge also removes the values.
CREATE FUNCTION threadline.find_value_owner(
    _tenant text, _owner text, _role text, _scope text, _scope_id text, _writes boolean,
    OUT problem text, OUT owner_id text
) LANGUAGE plpgsql AS $$
BEGIN
    IF _scope = 'thread' THEN
        IF _writes THEN
            SELECT t.owner_id INTO owner_id FROM threadline.threads t
            WHERE t.tenant_id = _tenant AND t.id = _scope_id AND t.deleted_at IS NULL FOR KEY SHARE;
        ELSE
            SELECT t.owner_id INTO owner_id FROM threadline.threads t
            WHERE t.tenant_id = _tenant AND t.id = _scope_id AND t.deleted_at IS NULL;
        END IF;
        problem := CASE WHEN NOT FOUND THEN 'thread' END;
    ELSIF _scope = 'user' THEN
        owner_id := _scope_id;
        problem := CASE WHEN _scope_id <> _owner AND _role <> 'threadline_worker' THEN 'user' END;
    END IF;
END $$;

-- Makes all changes or none. Row n of the result belongs to change n; if there is a problem it is the only row, of the
-- change that has it: a 'thread' or 'user' that is not here, or another 'version' than the expected one. A change without
-- a count of pieces removes its value. All versions are compared, with their rows locked, before anything is written. A
-- value that another transaction inserts at the same moment is a serialization failure: the caller retries. Changes come
-- in the order of their keys, so that two calls do not wait for each other.
CREATE FUNCTION threadline.write_values(
    _tenant text, _owner text, _role text, _now_us bigint,
    _scopes text[], _scope_ids text[], _namespaces text[], _keys text[], _expected bigint[], _sizes integer[],
    _key_ids text[], _expires_us bigint[], _counts integer[], _pieces bytea[]
) RETURNS TABLE (problem text, place integer, version bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    now_at constant timestamptz := threadline.from_us(_now_us);
    holder record;
    found_row record;
    holders text[] := '{}';
    stored bigint[] := '{}';
    current bigint[] := '{}';
    next_version bigint;
    next_piece integer := 1;
BEGIN
    FOR at IN 1..cardinality(_keys) LOOP
        holder := threadline.find_value_owner(_tenant, _owner, _role, _scopes[at], _scope_ids[at], true);
        IF holder.problem IS NOT NULL THEN
            RETURN QUERY SELECT holder.problem, at, 0::bigint;
            RETURN;
        END IF;
        SELECT v.version, v.expires_at INTO found_row FROM threadline.stored_values v
        WHERE v.tenant_id = _tenant AND v.scope = _scopes[at] AND v.scope_id = _scope_ids[at]
            AND v.namespace = _namespaces[at] AND v.key = _keys[at] AND v.n = 0 FOR UPDATE;
        holders := array_append(holders, holder.owner_id);
        stored := array_append(stored, found_row.version);
        current := array_append(
            current, CASE WHEN found_row.expires_at <= now_at THEN 0 ELSE coalesce(found_row.version, 0) END
        );
        IF _expected[at] <> current[at] THEN
            RETURN QUERY SELECT 'version', at, current[at];
            RETURN;
        END IF;
    END LOOP;
    FOR at IN 1..cardinality(_keys) LOOP
        next_version := current[at];
        IF _counts[at] IS NULL OR stored[at] IS NOT NULL THEN
            DELETE FROM threadline.stored_values v
            WHERE v.tenant_id = _tenant AND v.scope = _scopes[at] AND v.scope_id = _scope_ids[at]
                AND v.namespace = _namespaces[at] AND v.key = _keys[at] AND (_counts[at] IS NULL OR v.n > 0);
        END IF;
        IF _counts[at] IS NOT NULL THEN
            next_version := greatest(_now_us, coalesce(stored[at], 0) + 1);
            IF stored[at] IS NOT NULL THEN
                UPDATE threadline.stored_values v
                SET version = next_version, size = _sizes[at], key_id = _key_ids[at], updated_at = now_at,
                    expires_at = threadline.from_us(_expires_us[at]), piece = _pieces[next_piece]
                WHERE v.tenant_id = _tenant AND v.scope = _scopes[at] AND v.scope_id = _scope_ids[at]
                    AND v.namespace = _namespaces[at] AND v.key = _keys[at] AND v.n = 0;
            ELSE
                IF _scopes[at] = 'user' THEN
                    PERFORM threadline.ensure_user(_tenant, _scope_ids[at], _now_us);
                ELSIF _scopes[at] = 'tenant' THEN
                    INSERT INTO threadline.tenants (tenant_id, created_at) VALUES (_tenant, now_at)
                    ON CONFLICT DO NOTHING;
                END IF;
                INSERT INTO threadline.stored_values AS v
                    (tenant_id, scope, scope_id, namespace, key, n, owner_id, version, size, key_id, updated_at,
                    expires_at, piece)
                VALUES (_tenant, _scopes[at], _scope_ids[at], _namespaces[at], _keys[at], 0, holders[at], next_version,
                    _sizes[at], _key_ids[at], now_at, threadline.from_us(_expires_us[at]), _pieces[next_piece])
                ON CONFLICT DO NOTHING;
                IF NOT FOUND THEN
                    RAISE EXCEPTION 'value % was stored by another transaction', _keys[at]
                        USING ERRCODE = 'serialization_failure';
                END IF;
            END IF;
            IF _counts[at] > 1 THEN
                INSERT INTO threadline.stored_values AS v
                    (tenant_id, scope, scope_id, namespace, key, n, owner_id, version, size, key_id, updated_at,
                    expires_at, piece)
                SELECT _tenant, _scopes[at], _scope_ids[at], _namespaces[at], _keys[at], more, holders[at], next_version,
                    _sizes[at], _key_ids[at], now_at, threadline.from_us(_expires_us[at]), _pieces[next_piece + more]
                FROM generate_series(1, _counts[at] - 1) AS more;
            END IF;
            next_piece := next_piece + _counts[at];
        END IF;
        RETURN QUERY SELECT NULL::text, at, next_version;
    END LOOP;
END $$;

-- The data of a value whose first piece is given. A full first piece may have others after it.
CREATE FUNCTION threadline.join_pieces(
    _tenant text, _scope text, _scope_id text, _namespace text, _key text, _first bytea, _piece_bytes integer
) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
    joined bytea := _first;
BEGIN
    IF octet_length(_first) >= _piece_bytes THEN
        SELECT string_agg(v.piece, ''::bytea ORDER BY v.n) INTO joined FROM threadline.stored_values v
        WHERE v.tenant_id = _tenant AND v.scope = _scope AND v.scope_id = _scope_id AND v.namespace = _namespace
            AND v.key = _key;
    END IF;
    RETURN joined;
END $$;

-- The values under these keys, in their order. A row with a problem means that the thread or user is not here.
CREATE FUNCTION threadline.read_values(
    _tenant text, _owner text, _role text, _now_us bigint, _scope text, _scope_id text, _namespace text, _keys text[],
    _piece_bytes integer
) RETURNS TABLE (
    problem text, key text, version bigint, size integer, key_id text, updated_at timestamptz, expires_at timestamptz,
    data bytea
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    holder record;
BEGIN
    holder := threadline.find_value_owner(_tenant, _owner, _role, _scope, _scope_id, false);
    IF holder.problem IS NOT NULL THEN
        RETURN QUERY SELECT holder.problem, NULL::text, 0::bigint, 0, NULL::text, NULL::timestamptz,
            NULL::timestamptz, NULL::bytea;
        RETURN;
    END IF;
    RETURN QUERY SELECT NULL::text, v.key, v.version, v.size, v.key_id, v.updated_at, v.expires_at,
        threadline.join_pieces(_tenant, _scope, _scope_id, _namespace, v.key, v.piece, _piece_bytes)
        FROM threadline.stored_values v
        WHERE v.tenant_id = _tenant AND v.scope = _scope AND v.scope_id = _scope_id AND v.namespace = _namespace
            AND v.key = ANY (_keys) AND v.n = 0
            AND (v.expires_at IS NULL OR v.expires_at > threadline.from_us(_now_us))
        ORDER BY v.key;
END $$;

-- The values whose keys are from _first up to but without _end, and after _after (before it, if descending). With
-- _page_bytes the list has their data, and ends before the value that would make it larger. problem: as above. Two
-- statements, because each reads its index in another direction.
CREATE FUNCTION threadline.list_values(
    _tenant text, _owner text, _role text, _now_us bigint, _scope text, _scope_id text, _namespace text,
    _first text, _end text, _after text, _limit integer, _descending boolean, _page_bytes bigint, _piece_bytes integer
) RETURNS TABLE (
    problem text, key text, version bigint, size integer, key_id text, updated_at timestamptz, expires_at timestamptz,
    data bytea
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    now_at constant timestamptz := threadline.from_us(_now_us);
    holder record;
    held record;
    total bigint := 0;
    page refcursor;
BEGIN
    holder := threadline.find_value_owner(_tenant, _owner, _role, _scope, _scope_id, false);
    IF holder.problem IS NOT NULL THEN
        RETURN QUERY SELECT holder.problem, NULL::text, 0::bigint, 0, NULL::text, NULL::timestamptz,
            NULL::timestamptz, NULL::bytea;
        RETURN;
    END IF;
    IF _descending THEN
        OPEN page FOR SELECT v.key, v.version, v.size, v.key_id, v.updated_at, v.expires_at, v.piece
            FROM threadline.stored_values v
            WHERE v.tenant_id = _tenant AND v.scope = _scope AND v.scope_id = _scope_id AND v.namespace = _namespace
                AND v.key >= _first AND (_end IS NULL OR v.key < _end) AND (_after IS NULL OR v.key < _after)
                AND v.n = 0 AND (v.expires_at IS NULL OR v.expires_at > now_at)
            ORDER BY v.key DESC LIMIT _limit;
    ELSE
        OPEN page FOR SELECT v.key, v.version, v.size, v.key_id, v.updated_at, v.expires_at, v.piece
            FROM threadline.stored_values v
            WHERE v.tenant_id = _tenant AND v.scope = _scope AND v.scope_id = _scope_id AND v.namespace = _namespace
                AND v.key >= greatest(_first, coalesce(_after, _first)) AND (_end IS NULL OR v.key < _end)
                AND (_after IS NULL OR v.key > _after)
                AND v.n = 0 AND (v.expires_at IS NULL OR v.expires_at > now_at)
            ORDER BY v.key LIMIT _limit;
    END IF;
    LOOP
        FETCH page INTO held;
        EXIT WHEN NOT FOUND;
        IF total > 0 AND total + held.size > _page_bytes THEN
            RETURN QUERY SELECT NULL::text, held.key, held.version, held.size, held.key_id, held.updated_at,
                held.expires_at, NULL::bytea;
            EXIT;
        END IF;
        total := total + held.size;
        RETURN QUERY SELECT NULL::text, held.key, held.version, held.size, held.key_id, held.updated_at,
            held.expires_at, CASE WHEN _page_bytes IS NOT NULL THEN
                threadline.join_pieces(_tenant, _scope, _scope_id, _namespace, held.key, held.piece, _piece_bytes)
            END;
    END LOOP;
    CLOSE page;
END $$;

CREATE FUNCTION threadline.list_value_namespaces(
    _tenant text, _owner text, _role text, _now_us bigint, _scope text, _scope_id text
) RETURNS TABLE (problem text, namespace text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    now_at constant timestamptz := threadline.from_us(_now_us);
    holder record;
BEGIN
    holder := threadline.find_value_owner(_tenant, _owner, _role, _scope, _scope_id, false);
    IF holder.problem IS NOT NULL THEN
        RETURN QUERY SELECT holder.problem, NULL::text;
        RETURN;
    END IF;
    RETURN QUERY SELECT DISTINCT NULL::text, v.namespace FROM threadline.stored_values v
        WHERE v.tenant_id = _tenant AND v.scope = _scope AND v.scope_id = _scope_id AND v.n = 0
            AND (v.expires_at IS NULL OR v.expires_at > now_at)
        ORDER BY v.namespace;
END $$;

-- The number of rows that had expired and were removed.
CREATE FUNCTION threadline.drop_expired_values(_tenant text, _owner text, _role text, _now_us bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    removed bigint;
BEGIN
    DELETE FROM threadline.stored_values v
    WHERE v.tenant_id = _tenant AND v.expires_at <= threadline.from_us(_now_us);
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END $$;
