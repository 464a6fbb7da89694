-- oldest compatible: 28
--
-- The words of titles. indexed_title is the title whose words are in the index; the partial index lists the threads
-- where it differs. What a version 28 program writes is indexed by the next search.

ALTER TABLE threadline.threads ADD COLUMN indexed_title text;
CREATE INDEX threads_titles_to_index ON threadline.threads (tenant_id, owner_id) WHERE title IS DISTINCT FROM indexed_title;

CREATE TABLE threadline.title_search (
    tenant_id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (tenant_id, thread_id),
    -- A version 28 program that purges a thread does not know this table.
    FOREIGN KEY (tenant_id, thread_id) REFERENCES threadline.threads ON DELETE CASCADE
);
CREATE INDEX title_search_words ON threadline.title_search USING gin (words);

SELECT threadline.protect('threadline.title_search', 'owner_id');
CREATE POLICY every_row ON threadline.title_search FOR SELECT TO threadline_search USING (true);
GRANT SELECT ON threadline.title_search TO threadline_search;
