-- oldest compatible: 17
--
-- Scripts without spaces are indexed by pairs of characters: the index is built again, while the writer is idle or by the
-- next search. A version 16 program would build its own again and again.

INSERT INTO message_words (message_words) VALUES ('delete-all');
UPDATE search_progress SET indexed_no = 0, recipe = 2;
