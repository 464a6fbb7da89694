-- oldest compatible: 18
--
-- The words of titles. indexed_title is the title whose words are in the index; the partial index lists the threads
-- where it differs. What a version 18 program writes is indexed by the next search.

ALTER TABLE threads ADD COLUMN indexed_title TEXT;
CREATE INDEX threads_to_index ON threads (no) WHERE title IS NOT indexed_title;

CREATE VIRTUAL TABLE title_words USING fts5 (owner, words, tokenize = 'unicode61 remove_diacritics 2');
INSERT INTO title_words (title_words, rank) VALUES ('secure-delete', 1);

CREATE TRIGGER forget_title_words AFTER DELETE ON threads
BEGIN
    DELETE FROM title_words WHERE rowid = OLD.no;
END;
