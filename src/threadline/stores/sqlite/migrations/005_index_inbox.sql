-- oldest compatible: 4
--
-- Finds what was accepted and is not answered yet, among all that was.

CREATE INDEX inbox_open ON inbox (tenant_id, created_us) WHERE status = 'accepted';
