-- Composite types that functions take or return. This file is applied before the others.

-- The columns of a thread that callers read, in the order of the fields of `Thread`. Selecting them one by one inside the
-- function is cheaper than picking columns from a whole row afterwards, which took a fifth of the server's time for a list.
CREATE TYPE threadline.thread_columns AS (
    id text, owner_id text, state_key text, timeline_id text, title text, title_by_person boolean, agent_id text,
    model text, system_prompt text, working_dir text, metadata bytea, message_count integer, token_count bigint,
    created_at timestamptz, updated_at timestamptz, archived_at timestamptz, deleted_at timestamptz
);

-- A thread to create. Functions with many arguments take a composite: asyncpg encodes a NamedTuple with the same fields in
-- this order, at the cost of plain parameters (measured on append), and SQL callers assign its fields by name.
CREATE TYPE threadline.thread_args AS (
    id text, state_key text, timeline_id text, title text, title_by_person boolean, agent_id text, model text,
    system_prompt text, working_dir text, metadata bytea
);

-- Messages to append. ids, parts, metadata and created_us have one element per message; metadata and created_us may be
-- null if no message has any. roles has one letter per message: u(ser), a(ssistant) or s(ystem).
CREATE TYPE threadline.append_args AS (
    thread_id text, ids text[], roles text, parts bytea[], metadata bytea[], created_us bigint[], key text,
    fingerprint bytea, expected_count integer, max_count integer, turn_id text, tokens integer, title text
);

-- Where the messages were written, and the thread's columns that the caller cannot know.
CREATE TYPE threadline.append_result AS (timeline_id text, first_seq integer, token_count bigint, title text);

-- What accept_turn stores, sent as one JSON object. See `TurnAcceptance` in core/turn_commits.py. The fields from new_id
-- on are those of a thread that has to be created, those from platform on the claim of an arrival.
CREATE TYPE threadline.turn_request AS (
    turn_id text, surface text, policy text, status text, agent_id text, model text, key text, request_hash bytea,
    thread_id text, replaces text, lease_owner text, lease_seconds double precision, is_only_reserved boolean,
    must_check_holder boolean, seen text,
    message_id text, message_role text, message_metadata text, message_created_us bigint, title text,
    messages_per_thread integer, new_timeline_id text,
    new_id text, new_state_key text, new_title text, new_title_by_person boolean, new_agent_id text, new_model text,
    new_system_prompt text, new_working_dir text, new_metadata text,
    platform text, arrival_key text, fingerprint text, correlation_id text, reply_to text, place text,
    is_question_checked boolean, home_place text, home_keys text[]
);

-- What finish_turn stores, sent as one JSON object. ends_from are the statuses that this end may follow. The fields from
-- provider to turns are for a turn whose agent was called; for any other, day is null and nothing is counted.
CREATE TYPE threadline.turn_completion AS (
    turn_id text, fence integer, status text, ends_from text[], error text, usage text, seen text,
    provider text, model text, used_agent_id text, day integer, input_tokens bigint, output_tokens bigint, cached_tokens bigint,
    reasoning_tokens bigint, cost_nanos bigint, kind text, turns integer,
    chunk_numbers integer[], reply_id text, reply_metadata text, tokens integer, messages_per_thread integer,
    new_timeline_id text, platform text, arrival_key text, payloads text[], taken text[], taken_seen text
);
