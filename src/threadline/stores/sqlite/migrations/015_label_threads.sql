-- oldest compatible: 14
--
-- What lists of threads are filtered by: one row for the agent, for each of the first plain values of the metadata, and
-- for each of its `tags`. core/thread_filters.py writes the same labels. Triggers, so that every way to write a thread
-- keeps them.

CREATE TABLE thread_labels (
    tenant_id TEXT NOT NULL,
    label TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    thread_no INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, label, owner_id, thread_no)
) STRICT, WITHOUT ROWID;
CREATE INDEX thread_labels_by_thread ON thread_labels (thread_no);

CREATE VIEW labels_of_threads (tenant_id, label, owner_id, thread_no) AS
SELECT t.tenant_id, 'a' || t.agent_id, t.owner_id, t.no FROM threads t WHERE t.agent_id IS NOT NULL
UNION ALL
SELECT t.tenant_id, CASE m.type WHEN 'text' THEN 's' WHEN 'integer' THEN 'i' WHEN 'null' THEN 'n' ELSE 'b' END
        || m.key || char(31) || CASE m.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' ELSE coalesce(m.atom, '') END,
    t.owner_id, t.no
FROM threads t, json_each(CAST(t.metadata AS TEXT)) m
WHERE t.metadata IS NOT NULL AND length(m.key) + length(coalesce(m.atom, '')) <= 200
    AND (m.type IN ('text', 'true', 'false', 'null')
        OR m.type = 'integer' AND m.atom BETWEEN -999999999999999 AND 999999999999999)
UNION ALL
SELECT t.tenant_id, 't' || g.atom, t.owner_id, t.no
FROM threads t, json_each(CAST(t.metadata AS TEXT), '$.tags') g
WHERE t.metadata IS NOT NULL AND json_type(CAST(t.metadata AS TEXT), '$.tags') = 'array' AND g.type = 'text'
    AND length(g.atom) <= 200;

INSERT OR IGNORE INTO thread_labels (tenant_id, label, owner_id, thread_no)
SELECT tenant_id, label, owner_id, thread_no FROM labels_of_threads;

CREATE TRIGGER label_new_thread AFTER INSERT ON threads
WHEN NEW.metadata IS NOT NULL OR NEW.agent_id IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO thread_labels (tenant_id, label, owner_id, thread_no)
    SELECT tenant_id, label, owner_id, thread_no FROM labels_of_threads WHERE thread_no = NEW.no LIMIT 200;
END;

CREATE TRIGGER label_changed_thread AFTER UPDATE OF metadata, agent_id ON threads
WHEN NEW.metadata IS NOT OLD.metadata OR NEW.agent_id IS NOT OLD.agent_id
BEGIN
    DELETE FROM thread_labels WHERE thread_no = NEW.no;
    INSERT OR IGNORE INTO thread_labels (tenant_id, label, owner_id, thread_no)
    SELECT tenant_id, label, owner_id, thread_no FROM labels_of_threads WHERE thread_no = NEW.no LIMIT 200;
END;

CREATE TRIGGER unlabel_removed_thread AFTER DELETE ON threads
BEGIN
    DELETE FROM thread_labels WHERE thread_no = OLD.no;
END;

-- Turns of one surface, thread by thread; purges of a user read it by its first columns.
DROP INDEX turns_by_owner;
CREATE INDEX turns_by_owner ON turns (tenant_id, owner_id, surface, thread_no);
