-- oldest compatible: 17
--
-- Requests never delete audit entries, so their role may not. The worker's role keeps the right: purging a tenant
-- removes everything of it, its audit log included.
REVOKE DELETE ON threadline.audit FROM threadline_app;
