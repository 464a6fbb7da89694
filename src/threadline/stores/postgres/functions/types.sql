-- Composite types that functions take or return. This file is applied before the others.

-- The columns of a thread that callers read, in the order of the fields of `Thread`. Selecting them one by one inside the
-- function is cheaper than picking columns from a whole row afterwards, which took a fifth of the server's time for a list.
CREATE TYPE threadline.shown_thread AS (
    id text, owner_id text, state_key text, timeline_id text, title text, title_by_person boolean, agent_id text,
    model text, system_prompt text, working_dir text, metadata bytea, message_count integer, token_count bigint,
    created_at timestamptz, updated_at timestamptz, archived_at timestamptz, deleted_at timestamptz
);
