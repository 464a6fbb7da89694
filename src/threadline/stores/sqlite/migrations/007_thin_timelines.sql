-- oldest compatible: 7
--
-- A move writes three pages instead of five: a timeline's row, its thread's, and the thread's place in lists.
--
-- A thread's timelines form a chain, from threads.newest_timeline_no by earlier_no, which costs a move nothing, where an
-- index by thread cost it a page. keeps_base says that the base is needed by this timeline, and is in the index that
-- purges ask. It is 0 where the timeline goes on from its own thread, because whatever its history needs, the history it
-- came from needs too; it becomes 1 when the thread goes. Neither thread_no nor base_no is a foreign key any more: a
-- reference needs an index to be checked by. A version 6 program would move a thread and break its chain.

ALTER TABLE threads ADD COLUMN newest_timeline_no INTEGER;
UPDATE threads SET newest_timeline_no = (SELECT max(l.no) FROM timelines l WHERE l.thread_no = threads.no);

CREATE TABLE thin_timelines (
    no INTEGER PRIMARY KEY CHECK (no < 2147483648),
    tenant_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    id TEXT NOT NULL,
    thread_no INTEGER,
    earlier_no INTEGER,
    created_us INTEGER NOT NULL,
    parent_id TEXT,
    parent_seq INTEGER,
    base_no INTEGER,
    base_seq INTEGER,
    keeps_base INTEGER NOT NULL,
    ancestors BLOB NOT NULL
) STRICT;
INSERT INTO thin_timelines (no, tenant_id, owner_id, id, thread_no, earlier_no, created_us, parent_id, parent_seq,
    base_no, base_seq, keeps_base, ancestors)
SELECT l.no, l.tenant_id, l.owner_id, l.id, l.thread_no,
    (SELECT max(e.no) FROM timelines e WHERE e.thread_no = l.thread_no AND e.no < l.no),
    l.created_us, l.parent_id, l.parent_seq, l.base_no, l.base_seq, l.base_no IS NOT NULL, l.ancestors
FROM timelines l;
DROP TABLE timelines;
ALTER TABLE thin_timelines RENAME TO timelines;
CREATE INDEX timelines_by_base ON timelines (base_no, base_seq) WHERE keeps_base;
