-- oldest compatible: 27
--
-- Scripts without spaces are indexed by pairs of characters. Every message is indexed again, in the background or by the
-- next search of its owner; until then its entry finds what it found before.
-- A version 26 program would index messages without pairs.

ALTER TABLE threadline.message_search NO FORCE ROW LEVEL SECURITY;
ALTER TABLE threadline.search_backlog NO FORCE ROW LEVEL SECURITY;
INSERT INTO threadline.search_backlog (tenant_id, owner_id, timeline_id, first_seq, last_seq)
SELECT s.tenant_id, s.owner_id, s.timeline_id, min(s.seq), max(s.seq) FROM threadline.message_search s
GROUP BY s.tenant_id, s.owner_id, s.timeline_id
ON CONFLICT (tenant_id, owner_id, timeline_id, first_seq)
DO UPDATE SET last_seq = greatest(search_backlog.last_seq, excluded.last_seq);
ALTER TABLE threadline.search_backlog FORCE ROW LEVEL SECURITY;
ALTER TABLE threadline.message_search FORCE ROW LEVEL SECURITY;
