-- oldest compatible: 17
--
-- The provider and model of each turn, and what each user, agent and model used on each day: one row that the end of a
-- turn adds to, so that neither a list of usage nor a budget reads turns. Days are counted from 1970-01-01, in UTC. What
-- is not known is ''. cost_nanos is in billionths of the currency, and null if no turn had a price. A version 16 program
-- would end turns without counting them, and purge a user and leave these rows behind.

ALTER TABLE threadline.turns ADD COLUMN provider text, ADD COLUMN model text;

-- Space on each page for the next versions of its rows: an update that changes no indexed column then writes no index.
CREATE TABLE threadline.usage_days (
    tenant_id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    day integer NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    turns bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    cost_nanos bigint,
    PRIMARY KEY (tenant_id, owner_id, day, agent_id, provider, model),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES threadline.users
) WITH (fillfactor = 50);
CREATE INDEX usage_days_by_day ON threadline.usage_days (tenant_id, day);

-- Turns that ended before, without their models, which were not stored. Absurd numbers of a broken agent are cut off. The
-- owner of the tables may read all tenants only while row security is not forced, inside this transaction.
ALTER TABLE threadline.turns NO FORCE ROW LEVEL SECURITY;
INSERT INTO threadline.usage_days (tenant_id, owner_id, day, agent_id, provider, model, turns, input_tokens,
    output_tokens, cached_tokens, reasoning_tokens)
SELECT ended.tenant_id, ended.owner_id, floor(extract(epoch FROM ended.finished_at) / 86400)::integer,
    coalesce(ended.agent_id, ''), '', '', count(*), sum(used.input), sum(used.output), sum(used.cached),
    sum(used.reasoning)
FROM threadline.turns ended
CROSS JOIN LATERAL (
    SELECT convert_from(ended.usage, 'UTF8')::jsonb AS json
) stored
CROSS JOIN LATERAL (
    SELECT least(coalesce((stored.json ->> 'input_tokens')::numeric, 0), 1000000000)::bigint AS input,
        least(coalesce((stored.json ->> 'output_tokens')::numeric, 0), 1000000000)::bigint AS output,
        least(coalesce((stored.json ->> 'cached_tokens')::numeric, 0), 1000000000)::bigint AS cached,
        least(coalesce((stored.json ->> 'reasoning_tokens')::numeric, 0), 1000000000)::bigint AS reasoning
) used
WHERE ended.usage IS NOT NULL AND ended.finished_at IS NOT NULL
GROUP BY 1, 2, 3, 4;
ALTER TABLE threadline.turns FORCE ROW LEVEL SECURITY;

SELECT threadline.protect('threadline.usage_days', 'owner_id');
