-- oldest compatible: 16
--
-- Functions and composite types are no longer part of migrations: functions/*.sql defines them, and `migrate` applies
-- these files after the migrations whenever one of them changed. This migration drops what migrations 3 to 15 defined.
-- Four functions of migration 1 stay: policies call this_tenant and this_owner, and later migrations may call protect
-- and arrange.

-- The checksum of each file that was applied. Everyone may read it: opening a store compares it with the program's files.
CREATE TABLE threadline.function_files (
    subject text COLLATE "C" PRIMARY KEY,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
GRANT SELECT ON threadline.function_files TO public;

DO $$
DECLARE
    listed text;
BEGIN
    SELECT string_agg(p.oid::regprocedure::text, ', ') INTO listed FROM pg_proc p
    WHERE p.pronamespace = 'threadline'::regnamespace
        AND p.proname NOT IN ('this_tenant', 'this_owner', 'protect', 'arrange');
    IF listed IS NOT NULL THEN
        EXECUTE 'DROP FUNCTION ' || listed;
    END IF;
    SELECT string_agg(c.oid::regclass::text, ', ') INTO listed FROM pg_class c
    WHERE c.relnamespace = 'threadline'::regnamespace AND c.relkind = 'c';
    IF listed IS NOT NULL THEN
        EXECUTE 'DROP TYPE ' || listed;
    END IF;
END $$;
