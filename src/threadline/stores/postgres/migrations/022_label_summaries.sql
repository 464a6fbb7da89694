-- oldest compatible: 22
--
-- Who wrote a summary, and until when one process has a thread for itself to summarise it. Usage is counted by what it
-- was for: turns, summaries, titles. A version 21 program would look for usage under the key without the kind.

ALTER TABLE threadline.summaries ADD COLUMN source text NOT NULL DEFAULT 'extract', ADD COLUMN model text;

ALTER TABLE threadline.threads ADD COLUMN compacting_until timestamptz;

ALTER TABLE threadline.usage_days ADD COLUMN kind text COLLATE "C" NOT NULL DEFAULT 'turn';
ALTER TABLE threadline.usage_days DROP CONSTRAINT usage_days_pkey;
ALTER TABLE threadline.usage_days ADD PRIMARY KEY (tenant_id, owner_id, day, agent_id, provider, model, kind);
