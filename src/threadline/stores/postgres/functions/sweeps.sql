-- Tenants in which a sweep may find something: a turn that has not ended, a message of a platform that was not answered, a
-- delivery that was not settled. One round trip for all tenants; it enters each, so that row security holds here too. The
-- caller's role is that of the system. On Citus all tenants: what is set here does not reach the nodes.
CREATE FUNCTION threadline.busy_tenants() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    tenant text;
    ignored text;
BEGIN
    ignored := set_config('plan_cache_mode', 'force_generic_plan', true);
    ignored := set_config('enable_seqscan', 'off', true);
    IF to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL THEN
        RETURN QUERY SELECT t.tenant_id FROM threadline.tenants t;
        RETURN;
    END IF;
    FOR tenant IN SELECT t.tenant_id FROM threadline.tenants t LOOP
        ignored := set_config('threadline.tenant', tenant, true);
        IF EXISTS (SELECT FROM threadline.turns t WHERE t.tenant_id = tenant AND t.status IN ('accepted', 'running'))
            OR EXISTS (SELECT FROM threadline.inbox i WHERE i.tenant_id = tenant AND i.status = 'accepted')
            OR EXISTS (SELECT FROM threadline.outbox o WHERE o.tenant_id = tenant AND o.status IN ('waiting', 'claimed'))
        THEN
            RETURN NEXT tenant;
        END IF;
    END LOOP;
END $$;
