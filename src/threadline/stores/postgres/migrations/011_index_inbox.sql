-- oldest compatible: 10
--
-- Finds what was accepted and is not answered yet, among all that was.

CREATE INDEX inbox_open ON threadline.inbox (tenant_id, created_at) WHERE status = 'accepted';
