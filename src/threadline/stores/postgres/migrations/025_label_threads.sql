-- oldest compatible: 25
--
-- What lists of threads are filtered by: one row for the agent, for each of the first plain values of the metadata, and
-- for each of its `tags`. core/thread_filters.py writes the same labels. A version 24 program would change metadata and
-- leave these rows as they are.

CREATE TABLE threadline.thread_labels (
    tenant_id text COLLATE "C" NOT NULL,
    label text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, label, owner_id, thread_id),
    FOREIGN KEY (tenant_id, thread_id) REFERENCES threadline.threads
);
CREATE INDEX thread_labels_by_thread ON threadline.thread_labels (tenant_id, thread_id);

-- The owner of the tables may read all tenants only while row security is not forced, inside this transaction.
ALTER TABLE threadline.threads NO FORCE ROW LEVEL SECURITY;
INSERT INTO threadline.thread_labels (tenant_id, label, owner_id, thread_id)
SELECT t.tenant_id, 'a' || t.agent_id, t.owner_id, t.id FROM threadline.threads t WHERE t.agent_id IS NOT NULL
UNION
SELECT t.tenant_id, CASE json_typeof(m.value) WHEN 'string' THEN 's' WHEN 'number' THEN 'i' WHEN 'null' THEN 'n' ELSE 'b' END
        || m.key || chr(31) || coalesce(m.value #>> '{}', ''),
    t.owner_id, t.id
FROM threadline.threads t CROSS JOIN LATERAL json_each(convert_from(t.metadata, 'UTF8')::json) m
WHERE t.metadata IS NOT NULL AND length(m.key) + length(coalesce(m.value #>> '{}', '')) <= 200
    AND (json_typeof(m.value) IN ('string', 'boolean', 'null') OR m.value::text ~ '^-?[0-9]{1,15}$')
UNION
SELECT t.tenant_id, 't' || (g.value #>> '{}'), t.owner_id, t.id
FROM threadline.threads t CROSS JOIN LATERAL json_array_elements(
    CASE WHEN json_typeof(convert_from(t.metadata, 'UTF8')::json -> 'tags') = 'array'
        THEN convert_from(t.metadata, 'UTF8')::json -> 'tags' ELSE '[]' END
) g
WHERE t.metadata IS NOT NULL AND json_typeof(g.value) = 'string' AND length(g.value #>> '{}') <= 200;
ALTER TABLE threadline.threads FORCE ROW LEVEL SECURITY;

SELECT threadline.protect('threadline.thread_labels', 'owner_id');

-- Turns of one surface, thread by thread; purges of a user read it by its first columns.
DROP INDEX threadline.turns_by_owner;
CREATE INDEX turns_by_owner ON threadline.turns (tenant_id, owner_id, surface, thread_id);
