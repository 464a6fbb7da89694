-- oldest compatible: 7
--
-- What a running turn does many times a second, and how those who watch it learn of it.

-- Tells listeners that something about the turn may have changed. Ids only: anyone on the server may listen.
CREATE FUNCTION threadline.touch(_tenant text, _turn text) RETURNS void LANGUAGE sql
    RETURN pg_notify('threadline', _tenant || ' ' || _turn);

-- False if the fence is old. The row's lock keeps it from growing old meanwhile.
CREATE FUNCTION threadline.put_chunks(
    _tenant text, _owner text, _role text, _turn text, _fence integer, _numbers integer[], _chunks bytea[]
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
    holder text;
BEGIN
    SELECT t.owner_id INTO holder FROM threadline.turns t
    WHERE t.tenant_id = _tenant AND t.id = _turn AND t.fence = _fence FOR SHARE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO threadline.turn_chunks (tenant_id, turn_id, n, owner_id, chunk)
    SELECT _tenant, _turn, g.n, holder, g.chunk FROM unnest(_numbers, _chunks) AS g (n, chunk)
    ON CONFLICT DO NOTHING;
    PERFORM threadline.touch(_tenant, _turn);
    RETURN true;
END $$;

CREATE FUNCTION threadline.read_chunks(
    _tenant text, _owner text, _role text, _turn text, _after integer, _limit integer
) RETURNS TABLE (n integer, chunk bytea) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter(_tenant, _owner, _role);
BEGIN
    RETURN QUERY SELECT c.n, c.chunk FROM threadline.turn_chunks c
        WHERE c.tenant_id = _tenant AND c.turn_id = _turn AND c.n > _after ORDER BY c.n LIMIT _limit;
END $$;
