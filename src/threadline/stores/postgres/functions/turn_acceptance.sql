-- Accepts a request: one function and so one round trip. outcome is 'accepted', 'replayed' or a reason of `AcceptRefusal`.
-- Everything is checked before anything is written. What only the write itself can find (an id that is another owner's,
-- which row security hides) raises TL001 with the reason as its message, and so undoes what was written.

-- Stores a request whole. The advisory lock serialises one user's requests with each other and with their transactions of
-- several steps, so what is looked up here holds until the commit.
CREATE FUNCTION threadline.accept_turn(
    _tenant text, _owner text, _role text, _now_us bigint, _request jsonb, _parts bytea,
    OUT outcome text, OUT turn_id text, OUT is_created boolean, OUT is_leased boolean, OUT accepted_us bigint,
    OUT thread threadline.threads
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    given constant threadline.turn_request := jsonb_populate_record(NULL::threadline.turn_request, _request);
    earlier threadline.turns;
    continued record;
    target record;
    is_busy boolean := false;
    rewind_to integer;
    active_id text;
BEGIN
    PERFORM threadline.lock_user(_tenant, _owner);
    -- After the wait for the lock: a lease begins now.
    _now_us := threadline.shared_us(_now_us);
    accepted_us := _now_us;
    IF given.platform IS NOT NULL AND EXISTS (
        SELECT FROM threadline.inbox i
        WHERE i.tenant_id = _tenant AND i.platform = given.platform AND i.key = given.arrival_key
    ) THEN
        outcome := 'duplicate_arrival';
        RETURN;
    END IF;
    IF given.key IS NOT NULL THEN
        SELECT * INTO earlier FROM threadline.turns r
        WHERE r.tenant_id = _tenant AND r.owner_id = _owner AND r.idempotency_key = given.key;
        IF FOUND THEN
            turn_id := earlier.id;
            SELECT * INTO thread FROM threadline.threads t WHERE t.tenant_id = _tenant AND t.id = earlier.thread_id;
            outcome := CASE
                WHEN earlier.request_hash IS DISTINCT FROM given.request_hash THEN 'key_reused'
                WHEN NOT threadline.claim_arrival(_tenant, _owner, _now_us, given, earlier.id) THEN 'duplicate_arrival'
                ELSE 'replayed'
            END;
            IF outcome = 'replayed' AND earlier.status = 'interrupted' AND given.lease_seconds IS NOT NULL
                AND given.platform IS NULL THEN
                continued := threadline.continue_interrupted(_tenant, _owner, _role, _now_us, given, thread, earlier);
                outcome := continued.outcome;
                turn_id := continued.turn_id;
                is_leased := continued.is_leased;
                thread := continued.thread;
            END IF;
            RETURN;
        END IF;
    END IF;
    -- The turn that answers an approval has a fixed id: a repeat must find it and not the turn that runs.
    IF given.message_role = 'a' AND EXISTS (
        SELECT FROM threadline.turns r WHERE r.tenant_id = _tenant AND r.id = given.turn_id
    ) THEN
        outcome := 'id_known';
        RETURN;
    END IF;
    SELECT * INTO target FROM threadline.find_turn_thread(_tenant, _owner, given);
    outcome := target.outcome;
    IF outcome IS NOT NULL THEN
        RETURN;
    END IF;
    thread := target.thread;
    is_created := thread.id IS NULL;
    IF NOT is_created THEN
        SELECT c.outcome, c.active_id, c.rewind_to INTO outcome, turn_id, rewind_to
        FROM threadline.check_request(_tenant, given, _parts, thread) c;
        is_busy := turn_id IS NOT NULL;
        active_id := turn_id;
    ELSIF given.replaces IS NOT NULL THEN
        outcome := 'replaced_missing';
    END IF;
    IF outcome IS NOT NULL THEN
        RETURN;
    END IF;
    turn_id := given.turn_id;
    IF is_created THEN
        PERFORM threadline.ensure_user(_tenant, _owner, _now_us);
    END IF;
    IF given.platform IS NOT NULL
        AND NOT threadline.claim_arrival(_tenant, _owner, _now_us, given, given.turn_id) THEN
        outcome := 'duplicate_arrival';
        RETURN;
    END IF;
    IF is_busy AND given.policy = 'interrupt' THEN
        is_busy := threadline.stop_turns(_tenant, thread.id, _now_us);
    END IF;
    thread := threadline.store_request(
        _tenant, _owner, _role, _now_us, given, _parts, thread, target.must_bind, rewind_to
    );
    is_leased := given.lease_owner IS NOT NULL AND given.status = 'accepted' AND NOT is_busy
        AND NOT given.is_only_reserved;
    INSERT INTO threadline.turns (tenant_id, id, owner_id, thread_id, surface, agent_id, model, status, idempotency_key,
        request_hash, request_seq, seen, created_at, finished_at, lease_owner, lease_until, fence, steers)
    VALUES (_tenant, given.turn_id, thread.owner_id, thread.id, given.surface,
        coalesce(given.agent_id, thread.agent_id), given.model, CASE WHEN is_leased THEN 'running' ELSE given.status END, given.key,
        given.request_hash, thread.message_count - 1, convert_to(given.seen, 'UTF8'), threadline.from_us(_now_us),
        CASE WHEN given.status <> 'accepted' THEN threadline.from_us(_now_us) END,
        CASE WHEN given.status = 'accepted' THEN given.lease_owner END,
        CASE WHEN given.status = 'accepted'
            THEN threadline.from_us(_now_us) + make_interval(secs => given.lease_seconds) END,
        is_leased::integer, CASE WHEN given.policy = 'steer' AND given.replaces IS NULL THEN active_id END)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'TL001', MESSAGE = 'id_known';
    END IF;
    outcome := 'accepted';
END $$;

-- Leases an interrupted turn to run again, for a request that was repeated; without an owner of the lease it is handed
-- over to any process. If the thread ends with the turn's partial
-- reply, it is rewound to before it on a new timeline. The turn stays as it is if its request was undone or messages
-- follow it. Rows are locked in the order thread, turn.
CREATE FUNCTION threadline.continue_interrupted(
    _tenant text, _owner text, _role text, _now_us bigint, _given threadline.turn_request, _thread threadline.threads,
    _turn threadline.turns,
    OUT outcome text, OUT turn_id text, OUT is_leased boolean, OUT thread threadline.threads
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    active text;
BEGIN
    outcome := 'replayed';
    turn_id := _turn.id;
    thread := _thread;
    SELECT * INTO _thread FROM threadline.threads t
    WHERE t.tenant_id = _tenant AND t.id = _turn.thread_id AND t.deleted_at IS NULL FOR NO KEY UPDATE;
    IF NOT FOUND OR threadline.role_in_history(_tenant, _thread, _turn.id, _turn.request_seq) IS NULL THEN
        RETURN;
    END IF;
    IF _turn.reply_seq IS NULL AND threadline.has_later_request(_tenant, _thread, _turn.request_seq)
        OR _turn.reply_seq <> _thread.message_count - 1 OR _turn.reply_seq = _turn.request_seq
        OR threadline.role_in_history(_tenant, _thread, _turn.id, _turn.reply_seq) IS NULL AND _turn.reply_seq IS NOT NULL
    THEN
        RETURN;
    END IF;
    SELECT r.id INTO active FROM threadline.turns r
    WHERE r.tenant_id = _tenant AND r.thread_id = _thread.id AND r.status IN ('accepted', 'running')
    ORDER BY r.place LIMIT 1;
    IF FOUND THEN
        outcome := 'turn_running';
        turn_id := active;
        thread := _thread;
        RETURN;
    END IF;
    UPDATE threadline.turns r SET status = 'running', error = NULL, reply_seq = NULL, finished_at = NULL,
        stop_asked = false, fence = r.fence + 1, lease_owner = _given.lease_owner,
        lease_until = threadline.from_us(_now_us) + make_interval(secs => _given.lease_seconds)
    WHERE r.tenant_id = _tenant AND r.id = _turn.id AND r.status = 'interrupted' AND r.fence = _turn.fence;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF _turn.reply_seq IS NOT NULL THEN
        PERFORM threadline.move_thread(
            _tenant, _owner, _role, _now_us, _thread.id, _given.new_timeline_id, _turn.reply_seq - 1, NULL
        );
    END IF;
    PERFORM threadline.notify(_tenant, _turn.id);
    is_leased := _given.lease_owner IS NOT NULL;
    SELECT * INTO thread FROM threadline.threads t WHERE t.tenant_id = _tenant AND t.id = _thread.id;
END $$;

-- Whether something else than a few replies follows this seq of the thread's present history. Only those to earlier turns
-- can follow a request that has no reply.
CREATE FUNCTION threadline.has_later_request(_tenant text, _thread threadline.threads, _seq integer)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF _thread.message_count - 1 - _seq > 50 THEN
        RETURN true;
    END IF;
    PERFORM FROM threadline.timelines l
    CROSS JOIN LATERAL unnest(l.id || l.ancestors, (_thread.message_count - 1) || l.ancestor_seqs) AS h (line, top)
    JOIN threadline.messages m ON m.tenant_id = _tenant AND m.timeline_id = h.line AND m.seq > _seq
    WHERE l.tenant_id = _tenant AND l.id = _thread.timeline_id AND m.seq <= h.top AND m.role <> 'a' LIMIT 1;
    RETURN FOUND;
END $$;

-- The role of the turn's message at this seq of the thread's present history; null if there is none.
CREATE FUNCTION threadline.role_in_history(_tenant text, _thread threadline.threads, _turn text, _seq integer)
RETURNS "char" LANGUAGE plpgsql AS $$
DECLARE
    found_role "char";
BEGIN
    SELECT m.role INTO found_role FROM threadline.timelines l
    CROSS JOIN LATERAL unnest(l.id || l.ancestors, (_thread.message_count - 1) || l.ancestor_seqs) AS h (line, top)
    JOIN threadline.messages m ON m.tenant_id = _tenant AND m.timeline_id = h.line AND m.seq = _seq
    WHERE l.tenant_id = _tenant AND l.id = _thread.timeline_id AND _seq <= h.top AND m.turn_id = _turn LIMIT 1;
    RETURN found_role;
END $$;

-- The living thread that a request goes to, locked; null if it has to be created. must_bind says that the arrival's place
-- is not bound to it yet.
CREATE FUNCTION threadline.find_turn_thread(
    _tenant text, _owner text, _given threadline.turn_request,
    OUT outcome text, OUT must_bind boolean, OUT thread threadline.threads
) LANGUAGE plpgsql AS $$
DECLARE
    bound record;
    wanted text := _given.thread_id;
BEGIN
    must_bind := false;
    IF wanted IS NULL AND _given.place IS NOT NULL THEN
        must_bind := true;
        SELECT b.thread_id, b.owner_id, b.metadata INTO bound FROM threadline.bindings b
        WHERE b.tenant_id = _tenant AND b.surface = _given.platform AND b.place = _given.place;
        IF FOUND THEN
            outcome := CASE
                WHEN bound.owner_id <> _owner THEN 'place_taken'
                -- The key of an open question in a binding's metadata: METADATA_KEY in core/open_questions.py.
                WHEN NOT _given.is_question_checked AND position('"pending"'::bytea IN bound.metadata) > 0
                    THEN 'question_open'
            END;
            IF outcome IS NOT NULL THEN
                RETURN;
            END IF;
            wanted := bound.thread_id;
        END IF;
    END IF;
    IF wanted IS NOT NULL THEN
        SELECT * INTO thread FROM threadline.threads t
        WHERE t.tenant_id = _tenant AND t.id = wanted AND t.deleted_at IS NULL FOR NO KEY UPDATE;
        IF FOUND THEN
            must_bind := false;
            RETURN;
        ELSIF _given.thread_id IS NOT NULL THEN
            outcome := 'thread_missing';
            RETURN;
        END IF;
    END IF;
    IF _given.home_place IS NOT NULL THEN
        SELECT t.* INTO thread FROM threadline.bindings b
        JOIN threadline.threads t ON t.tenant_id = _tenant AND t.id = b.thread_id AND t.deleted_at IS NULL
        WHERE b.tenant_id = _tenant AND b.surface = 'web' AND b.place = _given.home_place AND b.owner_id = _owner
        FOR NO KEY UPDATE OF t;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    SELECT * INTO thread FROM threadline.threads t
    WHERE t.tenant_id = _tenant AND t.owner_id = _owner AND t.deleted_at IS NULL
        AND t.state_key = ANY (coalesce(_given.home_keys, ARRAY[_given.new_state_key]))
    ORDER BY array_position(_given.home_keys, t.state_key) LIMIT 1
    FOR NO KEY UPDATE;
END $$;

-- Whether a request can be stored in a thread that exists: the first active turn, and the seq before which the thread is
-- rewound.
CREATE FUNCTION threadline.check_request(
    _tenant text, _given threadline.turn_request, _parts bytea, _thread threadline.threads,
    OUT outcome text, OUT active_id text, OUT rewind_to integer
) LANGUAGE plpgsql AS $$
DECLARE
    replaced record;
    needed integer := 2;
    known record;
    holder text;
BEGIN
    SELECT r.id, r.lease_owner INTO active_id, holder FROM threadline.turns r
    WHERE r.tenant_id = _tenant AND r.thread_id = _thread.id AND r.status IN ('accepted', 'running')
    ORDER BY r.place LIMIT 1;
    IF active_id IS NOT NULL AND (
        _given.policy = 'reject' OR (_given.must_check_holder AND holder IS DISTINCT FROM _given.lease_owner)
    ) THEN
        outcome := 'turn_running';
        RETURN;
    END IF;
    IF _given.replaces IS NOT NULL THEN
        SELECT f.seq, f.role INTO replaced FROM threadline.find_in_history(_tenant, _thread, _given.replaces) f;
        outcome := CASE
            WHEN replaced.seq IS NULL THEN 'replaced_missing'
            WHEN replaced.role <> _given.message_role::"char" THEN 'replaced_not_user'
            WHEN replaced.role = 'a' AND replaced.seq <> _thread.message_count - 1 THEN 'replaced_not_last'
        END;
        IF outcome IS NOT NULL THEN
            RETURN;
        END IF;
        rewind_to := replaced.seq;
        -- A reply with its answers takes the place of the one that waits, and the whole reply takes the same place.
        needed := CASE replaced.role WHEN 'a' THEN 1 ELSE 2 END;
    END IF;
    -- A new message has a new id: one look into the index. Only a known id is looked for in this history.
    IF EXISTS (SELECT FROM threadline.messages m WHERE m.tenant_id = _tenant AND m.id = _given.message_id) THEN
        SELECT f.seq, f.role, f.parts INTO known
        FROM threadline.find_in_history(_tenant, _thread, _given.message_id) f;
        IF known.seq < coalesce(rewind_to, _thread.message_count) THEN
            -- Bodies compare as they are stored. Compressed by another version, the same body counts as another.
            outcome := CASE
                WHEN known.role = 'u' AND known.parts = _parts THEN 'message_repeated' ELSE 'message_known'
            END;
            RETURN;
        END IF;
    END IF;
    -- Room for the request and its reply, and for the replies of active turns (those of replaced requests are not
    -- stored). Active turns are counted only where their replies may not fit: more than 1,000 never wait on one thread.
    IF coalesce(rewind_to, _thread.message_count) + needed > _given.messages_per_thread
        OR rewind_to IS NULL AND _thread.message_count + 1000 > _given.messages_per_thread
        AND _thread.message_count + 2 + (
            SELECT count(*) FROM threadline.turns t
            WHERE t.tenant_id = _tenant AND t.thread_id = _thread.id AND t.status IN ('accepted', 'running')
        ) > _given.messages_per_thread
    THEN
        outcome := 'thread_full';
    END IF;
END $$;

-- Where a message is in the thread's present history; no row if it is not.
CREATE FUNCTION threadline.find_in_history(_tenant text, _thread threadline.threads, _message text)
RETURNS TABLE (seq integer, role "char", parts bytea) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT m.seq, m.role, m.parts
        FROM threadline.messages m
        JOIN threadline.timelines l ON l.tenant_id = _tenant AND l.id = _thread.timeline_id
        WHERE m.tenant_id = _tenant AND m.id = _message AND (
            m.timeline_id = l.id OR m.seq <= l.ancestor_seqs[array_position(l.ancestors, m.timeline_id)]
        ) LIMIT 1;
END $$;

-- False if the arrival was claimed before. Row security hides another owner's claim, so only the insert finds it.
CREATE FUNCTION threadline.claim_arrival(
    _tenant text, _owner text, _now_us bigint, _given threadline.turn_request, _turn text
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF _given.platform IS NULL THEN
        RETURN true;
    END IF;
    INSERT INTO threadline.inbox (tenant_id, platform, key, owner_id, status, decision, turn_id, fingerprint,
        correlation_id, reply_to, created_at, updated_at)
    VALUES (_tenant, _given.platform, _given.arrival_key, _owner, 'accepted', 'accepted', _turn, _given.fingerprint,
        _given.correlation_id, _given.reply_to, threadline.from_us(_now_us), threadline.from_us(_now_us))
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;

-- Asks every active turn of the thread to stop; one that does not run yet ends at once. Returns whether any still runs.
CREATE FUNCTION threadline.stop_turns(_tenant text, _thread text, _now_us bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    at constant timestamptz := threadline.from_us(_now_us);
    still_runs boolean := false;
    stopped record;
BEGIN
    FOR stopped IN
        UPDATE threadline.turns r SET stop_asked = true,
            finished_at = CASE WHEN r.status = 'accepted' THEN at END,
            status = CASE WHEN r.status = 'accepted' THEN 'stopped' ELSE r.status END
        WHERE r.tenant_id = _tenant AND r.thread_id = _thread AND r.status IN ('accepted', 'running')
        RETURNING r.id, r.status
    LOOP
        PERFORM threadline.notify(_tenant, stopped.id);
        still_runs := still_runs OR stopped.status = 'running';
    END LOOP;
    RETURN still_runs;
END $$;

-- The thread after its request was appended: created and bound, or rewound, where that is asked for.
CREATE FUNCTION threadline.store_request(
    _tenant text, _owner text, _role text, _now_us bigint, _given threadline.turn_request, _parts bytea,
    _thread threadline.threads, _must_bind boolean, _rewind_to integer
) RETURNS threadline.threads LANGUAGE plpgsql AS $$
DECLARE
    new threadline.thread_args;
    made record;
    message threadline.append_args;
    placed threadline.append_result;
    stored threadline.threads;
BEGIN
    IF _thread.id IS NULL THEN
        new.id := _given.new_id;
        new.state_key := _given.new_state_key;
        new.timeline_id := _given.new_timeline_id;
        new.title := _given.new_title;
        new.title_by_person := _given.new_title_by_person;
        new.agent_id := _given.new_agent_id;
        new.model := _given.new_model;
        new.system_prompt := _given.new_system_prompt;
        new.working_dir := _given.new_working_dir;
        new.metadata := convert_to(_given.new_metadata, 'UTF8');
        SELECT * INTO made FROM threadline.create_thread(_tenant, _owner, _role, _now_us, new);
        IF made.problem = 'state_key' THEN
            -- A thread was created under the key since it was looked up: the next attempt finds it.
            RAISE EXCEPTION 'state key % is taken', _given.new_state_key USING ERRCODE = 'serialization_failure';
        ELSIF made.problem IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'TL001', MESSAGE = 'id_known';
        END IF;
        _thread := made.result;
    ELSIF _rewind_to IS NOT NULL THEN
        PERFORM threadline.move_thread(
            _tenant, _owner, _role, _now_us, _thread.id, _given.new_timeline_id, _rewind_to - 1, NULL
        );
    END IF;
    IF _must_bind THEN
        UPDATE threadline.bindings b SET thread_id = _thread.id, updated_at = threadline.from_us(_now_us)
        WHERE b.tenant_id = _tenant AND b.surface = _given.platform AND b.place = _given.place AND b.owner_id = _owner;
        IF NOT FOUND THEN
            INSERT INTO threadline.bindings (tenant_id, surface, place, owner_id, thread_id, created_at, updated_at)
            VALUES (_tenant, _given.platform, _given.place, _owner, _thread.id, threadline.from_us(_now_us),
                threadline.from_us(_now_us)) ON CONFLICT DO NOTHING;
            IF NOT FOUND THEN
                RAISE EXCEPTION USING ERRCODE = 'TL001', MESSAGE = 'place_taken';
            END IF;
        END IF;
    END IF;
    message.thread_id := _thread.id;
    message.ids := ARRAY[_given.message_id];
    message.roles := _given.message_role;
    message.parts := ARRAY[_parts];
    message.metadata := CASE
        WHEN _given.message_metadata IS NOT NULL THEN ARRAY[convert_to(_given.message_metadata, 'UTF8')]
    END;
    message.created_us := CASE WHEN _given.message_created_us IS NOT NULL THEN ARRAY[_given.message_created_us] END;
    message.max_count := _given.messages_per_thread;
    message.turn_id := _given.turn_id;
    message.tokens := 0;
    message.title := _given.title;
    placed := threadline.append(_tenant, _owner, _role, _now_us, message, _ids_checked => true);
    ASSERT placed.timeline_id IS NOT NULL, 'a locked thread changed';
    SELECT * INTO stored FROM threadline.threads t WHERE t.tenant_id = _tenant AND t.id = _thread.id;
    RETURN stored;
END $$;
