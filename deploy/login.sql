-- The login of the service, after `threadline migrate`: psql --set=password=… --file=login.sql. Safe to repeat.
SELECT 'CREATE ROLE threadline_service LOGIN' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'threadline_service')
\gexec
ALTER ROLE threadline_service PASSWORD :'password';
GRANT threadline_app, threadline_worker TO threadline_service;
