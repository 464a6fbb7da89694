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
CREATE FUNCTION threadline.ensure_user(_tenant text, _user text, _now_us bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM threadline.users u WHERE u.tenant_id = _tenant AND u.id = _user) THEN
        RETURN;
    END IF;
    INSERT INTO threadline.tenants (tenant_id, created_at) VALUES (_tenant, threadline.moment(_now_us))
    ON CONFLICT DO NOTHING;
    INSERT INTO threadline.users (tenant_id, id, created_at) VALUES (_tenant, _user, threadline.moment(_now_us))
    ON CONFLICT DO NOTHING;
END $$;
