-- name: accept_turn
SELECT outcome, turn_id, is_created, is_leased, accepted_us, (thread).id, (thread).owner_id, (thread).state_key,
    (thread).timeline_id, (thread).title, (thread).title_by_person, (thread).agent_id, (thread).model,
    (thread).system_prompt, (thread).working_dir, (thread).metadata, (thread).message_count, (thread).token_count,
    (thread).created_at, (thread).updated_at, (thread).archived_at, (thread).deleted_at
FROM threadline.accept_turn($1, $2, $3, $4, $5, $6)

-- name: finish_turn
SELECT outcome, (turn).id, (turn).owner_id, (turn).thread_id, (turn).surface, (turn).agent_id, (turn).status,
    (turn).idempotency_key, (turn).request_hash, (turn).request_seq, (turn).reply_seq, (turn).error, (turn).usage,
    (turn).seen, (turn).lease_owner, (turn).lease_until, (turn).fence, (turn).created_at, (turn).finished_at,
    (turn).provider, (turn).model, (turn).steers
FROM threadline.finish_turn($1, $2, $3, $4, $5, $6, $7)
