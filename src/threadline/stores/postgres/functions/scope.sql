-- Functions that clients call are the operations of the store, each one round trip. They run with the caller's rights
-- and first enter the scope for the rest of the transaction. An expected error is returned as `problem`, not raised: an
-- exception would end the transaction around it. Every statement names the tenant, so that Citus can run a whole function
-- on the tenant's node. Calls are assignments where possible, because PERFORM costs four times as much.

-- Sets role, tenant and owner as SET LOCAL would. Generic plans, because PostgreSQL would otherwise plan every append
-- again, at a third of its cost: it overestimates the length of the array of ids. No sequential scans, because a
-- connection keeps a plan that was made while a table was small.
CREATE FUNCTION threadline.enter_scope(_tenant text, _owner text, _role text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    ignored text;
BEGIN
    ignored := set_config('role', _role, true);
    ignored := set_config('threadline.tenant', _tenant, true);
    ignored := set_config('threadline.owner', _owner, true);
    ignored := set_config('plan_cache_mode', 'force_generic_plan', true);
    ignored := set_config('enable_seqscan', 'off', true);
    -- CLUSTER ignored := set_config('citus.allow_nested_distributed_execution', 'on', true);
    RETURN true;
END $$;

-- Waits for the user's other transactions of several steps. 1 is the namespace of these locks.
CREATE FUNCTION threadline.lock_user(_tenant text, _owner text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(_tenant || '/' || _owner, 1));
END $$;

-- How a transaction of several statements begins on a cluster: on its tenant's node, which the settings of the transaction
-- do not reach.
CREATE FUNCTION threadline.begin_on_node(
    _tenant text, _owner text, _role text, _lock_timeout text, _locks_user boolean
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ignored text := set_config('lock_timeout', _lock_timeout, true);
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
BEGIN
    IF _locks_user THEN
        PERFORM threadline.lock_user(_tenant, _owner);
    END IF;
END $$;

-- STABLE like the addition in it: otherwise PostgreSQL calls the function instead of inlining it.
CREATE FUNCTION threadline.from_us(_us bigint) RETURNS timestamptz LANGUAGE sql STABLE
    RETURN timestamptz 'epoch' + _us * interval '1 microsecond';

-- The time of what processes compare with each other: leases and due times. Null is the server's clock, the only one that
-- processes on several machines share; tests give a time of their own. Not now(), which is when the transaction began: it
-- may have waited for a lock since then, and a lease that it granted would end so much sooner.
CREATE FUNCTION threadline.shared_us(_given_us bigint) RETURNS bigint LANGUAGE sql VOLATILE
    RETURN coalesce(_given_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);

-- Adds the tenant and the user if they are new, because rows refer to them.
CREATE FUNCTION threadline.ensure_user(_tenant text, _user text, _now_us bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM threadline.users u WHERE u.tenant_id = _tenant AND u.id = _user) THEN
        RETURN;
    END IF;
    INSERT INTO threadline.tenants (tenant_id, created_at) VALUES (_tenant, threadline.from_us(_now_us))
    ON CONFLICT DO NOTHING;
    INSERT INTO threadline.users (tenant_id, id, created_at) VALUES (_tenant, _user, threadline.from_us(_now_us))
    ON CONFLICT DO NOTHING;
END $$;
