-- oldest compatible: 12
--
-- Who wrote a summary, and until when one process has a thread for itself to summarise it. Usage is counted by what it
-- was for: turns, summaries, titles. A version 11 program would look for usage under the key without the kind.

ALTER TABLE summaries ADD COLUMN source TEXT NOT NULL DEFAULT 'extract';
ALTER TABLE summaries ADD COLUMN model TEXT;

ALTER TABLE threads ADD COLUMN compacting_until_us INTEGER;

CREATE TABLE usage_by_kind (
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
    kind TEXT NOT NULL DEFAULT 'turn',
    PRIMARY KEY (tenant_id, owner_id, day, agent_id, provider, model, kind),
    FOREIGN KEY (tenant_id, owner_id) REFERENCES users (tenant_id, id)
) STRICT, WITHOUT ROWID;
INSERT INTO usage_by_kind (tenant_id, owner_id, day, agent_id, provider, model, turns, input_tokens, output_tokens,
    cached_tokens, reasoning_tokens, cost_nanos)
SELECT tenant_id, owner_id, day, agent_id, provider, model, turns, input_tokens, output_tokens, cached_tokens,
    reasoning_tokens, cost_nanos FROM usage_days;
DROP TABLE usage_days;
ALTER TABLE usage_by_kind RENAME TO usage_days;
CREATE INDEX usage_days_by_day ON usage_days (tenant_id, day);
