-- Spreads the tables of a new database over the nodes of a Citus cluster, by tenant, each after those it refers to.

-- name: distribute_tenants
SELECT create_distributed_table('threadline.tenants', 'tenant_id')

-- name: simplify_policies
-- Citus refuses policies with a subquery. On one server it looks the owner up once for all rows.
DROP POLICY of_owner ON threadline.messages;
CREATE POLICY of_owner ON threadline.messages TO threadline_app
USING (tenant_id = threadline.this_tenant() AND coalesce(owner_id = threadline.this_owner(), false))

-- name: list_tables
-- Each after the tables that its foreign keys name.
WITH RECURSIVE depths (tableid, depth) AS (
    SELECT c.oid, 0 FROM pg_class c
    WHERE c.relnamespace = 'threadline'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
        AND c.relname NOT IN ('migrations', 'function_files', 'tenants')
    UNION
    SELECT k.conrelid, d.depth + 1 FROM depths d JOIN pg_constraint k ON k.confrelid = d.tableid AND k.contype = 'f'
    WHERE k.conrelid <> k.confrelid
)
SELECT d.tableid::regclass::text AS tablename FROM depths d GROUP BY d.tableid ORDER BY max(d.depth), 1

-- name: distribute_table
SELECT create_distributed_table($1::text::regclass, 'tenant_id', colocate_with => 'threadline.tenants')

-- name: distribute_function
SELECT create_distributed_function($1::text::regprocedure, '_tenant', 'threadline.tenants', force_delegation => true)

-- name: allow_any_query
-- A function that is delegated also inside a transaction may run only queries whose tenant Citus recognizes, which leaves
-- out subqueries. The nodes check that, so only the coordinator may know. Each function stays with one tenant anyway.
SELECT run_command_on_workers('UPDATE pg_catalog.pg_dist_object SET force_delegation = false WHERE force_delegation')
