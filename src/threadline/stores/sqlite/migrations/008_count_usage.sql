-- oldest compatible: 8
--
-- The provider and model of each turn, and what each user, agent and model used on each day: one row that the end of a
-- turn adds to, so that neither a list of usage nor a budget reads turns. Days are counted from 1970-01-01, in UTC. What
-- is not known is ''. cost_nanos is in billionths of the currency, and null if no turn had a price. A version 7 program
-- would end turns without counting them, and purge a user and leave these rows behind.

ALTER TABLE turns ADD COLUMN provider TEXT;
ALTER TABLE turns ADD COLUMN model TEXT;

CREATE TABLE usage_days (
    tenant_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    day INTEGER NOT NULL,
    agent_id TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    turns INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cost_nanos INTEGER,
    PRIMARY KEY (tenant_id, owner_id, day, agent_id, provider, model),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_days_by_day ON usage_days (tenant_id, day);

-- Turns that ended before, without their models, which were not stored. Absurd numbers of a broken agent are cut off.
INSERT INTO usage_days (tenant_id, owner_id, day, agent_id, provider, model, turns, input_tokens, output_tokens,
    cached_tokens, reasoning_tokens)
SELECT tenant_id, owner_id, finished_us / 86400000000, coalesce(agent_id, ''), '', '', count(*),
    sum(CAST(min(coalesce(json_extract(CAST(usage AS TEXT), '$.input_tokens'), 0), 1000000000) AS INTEGER)),
    sum(CAST(min(coalesce(json_extract(CAST(usage AS TEXT), '$.output_tokens'), 0), 1000000000) AS INTEGER)),
    sum(CAST(min(coalesce(json_extract(CAST(usage AS TEXT), '$.cached_tokens'), 0), 1000000000) AS INTEGER)),
    sum(CAST(min(coalesce(json_extract(CAST(usage AS TEXT), '$.reasoning_tokens'), 0), 1000000000) AS INTEGER))
FROM turns WHERE usage IS NOT NULL AND finished_us IS NOT NULL
GROUP BY 1, 2, 3, 4;
