-- Spreads the tables of a new database over the nodes of a Citus cluster, by tenant, each after those it refers to.
-- Settings of a transaction have to reach the workers.

-- name: propagate_settings
DO $$ BEGIN
    EXECUTE format('ALTER DATABASE %I SET citus.propagate_set_commands = local', current_database());
END $$

-- name: distribute_tenants
SELECT create_distributed_table('threadline.tenants', 'tenant_id')

-- name: distribute_tables
SELECT create_distributed_table(spread.tablename, 'tenant_id', colocate_with => 'threadline.tenants')
FROM unnest(ARRAY[
    'threadline.users', 'threadline.agents', 'threadline.threads', 'threadline.timelines', 'threadline.messages',
    'threadline.saved_points', 'threadline.append_keys', 'threadline.context_snapshots', 'threadline.bindings',
    'threadline.links', 'threadline.link_codes', 'threadline.inbox', 'threadline.outbox', 'threadline.turns',
    'threadline.turn_chunks', 'threadline.tool_runs', 'threadline.summaries', 'threadline.message_search',
    'threadline.search_backlog', 'threadline.api_tokens', 'threadline.permits', 'threadline.audit',
    'threadline.credentials', 'threadline.usage_days', 'threadline.stored_values'
]::regclass[]) AS spread (tablename)

-- name: distribute_function
SELECT create_distributed_function($1::text::regprocedure, '_tenant', colocate_with => 'threadline.tenants')
