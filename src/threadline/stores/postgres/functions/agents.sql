CREATE FUNCTION threadline.find_agent(_tenant text, _owner text, _role text, _id text)
RETURNS SETOF threadline.agents LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
BEGIN
    RETURN QUERY SELECT * FROM threadline.agents a WHERE a.tenant_id = _tenant AND a.id = _id;
END $$;

CREATE FUNCTION threadline.find_context(_tenant text, _owner text, _role text, _agent text)
RETURNS SETOF threadline.context_snapshots LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
BEGIN
    RETURN QUERY SELECT * FROM threadline.context_snapshots c
        WHERE c.tenant_id = _tenant AND c.owner_id = _owner AND c.agent_id = _agent;
END $$;
