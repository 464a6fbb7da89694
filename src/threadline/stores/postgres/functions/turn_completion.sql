-- Finishes a turn: one function and so one round trip. outcome is 'finished', 'end_invalid' or a reason of `FinishRefusal`.
-- Everything is checked before anything is written.

-- Ends a turn. Rows are locked in the order thread, turn, as accept_turn does, so that the two cannot deadlock.
CREATE FUNCTION threadline.finish_turn(
    _tenant text, _owner text, _role text, _now_us bigint, _completion jsonb, _parts bytea, _chunks bytea[],
    OUT outcome text, OUT turn threadline.turns
) LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    given constant threadline.turn_completion := jsonb_populate_record(NULL::threadline.turn_completion, _completion);
    thread threadline.threads;
    message threadline.append_args;
    placed threadline.append_result;
    seq integer;
BEGIN
    _now_us := threadline.shared_us(_now_us);
    SELECT t.* INTO thread FROM threadline.turns r
    JOIN threadline.threads t ON t.tenant_id = _tenant AND t.id = r.thread_id AND t.deleted_at IS NULL
    WHERE r.tenant_id = _tenant AND r.id = given.turn_id FOR NO KEY UPDATE OF t;
    SELECT * INTO turn FROM threadline.turns r
    WHERE r.tenant_id = _tenant AND r.id = given.turn_id FOR NO KEY UPDATE;
    outcome := CASE
        WHEN turn.id IS NULL THEN 'turn_missing'
        WHEN turn.fence <> given.fence THEN 'lease_lost'
        WHEN turn.status NOT IN ('accepted', 'running') THEN 'already_ended'
        WHEN turn.status <> ALL (given.ends_from) THEN 'end_invalid'
    END;
    IF outcome IS NULL AND given.reply_id IS NOT NULL AND thread.id IS NOT NULL THEN
        PERFORM FROM threadline.messages m
        WHERE m.tenant_id = _tenant AND m.timeline_id = thread.timeline_id AND m.seq = turn.request_seq
            AND m.turn_id = turn.id AND m.role = 'u';
        IF FOUND THEN
            -- Mostly the request is a user message on the thread's own timeline, and the reply's id is new.
            message.thread_id := thread.id;
            message.ids := ARRAY[given.reply_id];
            message.roles := 'a';
            message.parts := ARRAY[_parts];
            message.metadata := CASE
                WHEN given.reply_metadata IS NOT NULL THEN ARRAY[convert_to(given.reply_metadata, 'UTF8')]
            END;
            message.max_count := given.messages_per_thread;
            message.turn_id := turn.id;
            message.tokens := given.tokens;
            placed := threadline.append(_tenant, _owner, _role, _now_us, message);
            seq := placed.first_seq;
        END IF;
        IF seq IS NULL THEN
            SELECT s.outcome, s.seq INTO outcome, seq
            FROM threadline.store_reply(_tenant, _owner, _role, _now_us, given, _parts, thread, turn) s;
        END IF;
    END IF;
    IF outcome IS NOT NULL THEN
        RETURN;
    END IF;
    INSERT INTO threadline.turn_chunks (tenant_id, turn_id, n, owner_id, chunk)
    SELECT _tenant, turn.id, g.n, turn.owner_id, g.chunk FROM unnest(given.chunk_numbers, _chunks) AS g (n, chunk)
    ON CONFLICT DO NOTHING;
    UPDATE threadline.turns r SET status = given.status, error = given.error,
        usage = convert_to(given.usage, 'UTF8'), seen = convert_to(given.seen, 'UTF8'), reply_seq = seq,
        provider = given.provider, model = coalesce(given.model, r.model), finished_at = threadline.from_us(_now_us)
    WHERE r.tenant_id = _tenant AND r.id = turn.id RETURNING r.* INTO turn;
    PERFORM threadline.notify(_tenant, turn.id);
    IF given.platform IS NOT NULL THEN
        PERFORM threadline.deliver_reply(_tenant, _now_us, given, turn);
    END IF;
    IF given.taken IS NOT NULL THEN
        PERFORM threadline.end_taken_turns(_tenant, _now_us, given, turn);
    END IF;
    IF given.day IS NOT NULL THEN
        PERFORM threadline.add_usage(_tenant, turn.owner_id, given);
    END IF;
    outcome := 'finished';
END $$;

-- Ends the turns whose messages the ended one took in, and settles their arrivals.
CREATE FUNCTION threadline.end_taken_turns(
    _tenant text, _now_us bigint, _given threadline.turn_completion, _turn threadline.turns
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ended text;
BEGIN
    FOR ended IN
        UPDATE threadline.turns r SET status = _turn.status, seen = convert_to(_given.taken_seen, 'UTF8'),
            reply_seq = _turn.reply_seq, finished_at = threadline.from_us(_now_us)
        WHERE r.tenant_id = _tenant AND r.thread_id = _turn.thread_id AND r.id = ANY (_given.taken)
            AND r.steers = _turn.id AND r.reply_seq IS NULL AND r.status IN ('accepted', 'interrupted')
        RETURNING r.id
    LOOP
        PERFORM threadline.notify(_tenant, ended);
        UPDATE threadline.inbox i SET status = 'done', decision = _turn.status, updated_at = threadline.from_us(_now_us)
        WHERE i.tenant_id = _tenant AND i.turn_id = ended AND i.status = 'accepted';
    END LOOP;
END $$;

-- The reply's seq; null if its request is not in the thread's present history. A reply that continues one which waited for
-- approval takes that one's place on a new timeline, and the messages after it follow under their own seq.
CREATE FUNCTION threadline.store_reply(
    _tenant text, _owner text, _role text, _now_us bigint, _given threadline.turn_completion, _parts bytea,
    _thread threadline.threads, _turn threadline.turns, OUT outcome text, OUT seq integer
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    lineage record;
    asked "char";
    later record;
    message threadline.append_args;
    placed threadline.append_result;
BEGIN
    SELECT l.id || l.ancestors AS ids, (_thread.message_count - 1) || l.ancestor_seqs AS tops INTO lineage
    FROM threadline.timelines l WHERE l.tenant_id = _tenant AND l.id = _thread.timeline_id;
    SELECT m.role INTO asked FROM unnest(lineage.ids, lineage.tops) AS h (line, top)
    JOIN threadline.messages m ON m.tenant_id = _tenant AND m.timeline_id = h.line AND m.seq = _turn.request_seq
    WHERE _turn.request_seq <= h.top AND m.turn_id = _turn.id LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    seq := CASE asked WHEN 'a' THEN _turn.request_seq ELSE _thread.message_count END;
    outcome := CASE
        WHEN (SELECT f.seq FROM threadline.find_in_history(_tenant, _thread, _given.reply_id) f) < seq
            THEN 'reply_known'
        WHEN _thread.message_count + (asked <> 'a')::integer > _given.messages_per_thread THEN 'thread_full'
    END;
    IF outcome IS NOT NULL THEN
        RETURN;
    END IF;
    IF asked = 'a' THEN
        PERFORM threadline.move_thread(
            _tenant, _owner, _role, _now_us, _thread.id, _given.new_timeline_id, seq - 1, NULL
        );
    END IF;
    message.thread_id := _thread.id;
    message.ids := ARRAY[_given.reply_id];
    message.roles := 'a';
    message.parts := ARRAY[_parts];
    message.metadata := CASE
        WHEN _given.reply_metadata IS NOT NULL THEN ARRAY[convert_to(_given.reply_metadata, 'UTF8')]
    END;
    message.max_count := _given.messages_per_thread;
    message.turn_id := _turn.id;
    message.tokens := _given.tokens;
    placed := threadline.append(_tenant, _owner, _role, _now_us, message, _ids_checked => true);
    ASSERT placed.timeline_id IS NOT NULL, 'a locked thread changed';
    IF asked <> 'a' THEN
        RETURN;
    END IF;
    FOR later IN
        SELECT m.id, m.role, m.parts, m.metadata, m.created_us, m.turn_id
        FROM unnest(lineage.ids, lineage.tops) AS h (line, top)
        JOIN threadline.messages m ON m.tenant_id = _tenant AND m.timeline_id = h.line
            AND m.seq > _turn.request_seq AND m.seq <= h.top
        ORDER BY m.seq
    LOOP
        message.ids := ARRAY[later.id];
        message.roles := later.role;
        message.parts := ARRAY[later.parts];
        message.metadata := CASE WHEN later.metadata IS NOT NULL THEN ARRAY[later.metadata] END;
        message.created_us := ARRAY[later.created_us];
        message.turn_id := later.turn_id;
        message.tokens := 0;
        placed := threadline.append(_tenant, _owner, _role, _now_us, message, _ids_checked => true);
        ASSERT placed.timeline_id IS NOT NULL, 'a locked thread changed';
    END LOOP;
    -- What was hidden stays hidden in the copies.
    INSERT INTO threadline.hidden_parts (tenant_id, timeline_id, seq, part, owner_id, turn_id, hidden_at)
    SELECT _tenant, _given.new_timeline_id, hidden.seq, hidden.part, hidden.owner_id, hidden.turn_id, hidden.hidden_at
    FROM unnest(lineage.ids, lineage.tops) AS h (line, top)
    JOIN threadline.hidden_parts hidden ON hidden.tenant_id = _tenant AND hidden.timeline_id = h.line
        AND hidden.seq > _turn.request_seq AND hidden.seq <= h.top;
END $$;

-- One outbox row for each payload, to the place that the turn's arrival named; the arrival is settled with it.
CREATE FUNCTION threadline.deliver_reply(
    _tenant text, _now_us bigint, _given threadline.turn_completion, _turn threadline.turns
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    recipient text;
BEGIN
    SELECT i.reply_to INTO recipient FROM threadline.inbox i
    WHERE i.tenant_id = _tenant AND i.platform = _given.platform AND i.key = _given.arrival_key;
    IF recipient IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO threadline.outbox (tenant_id, id, owner_id, turn_id, platform, recipient, payload, status,
        next_attempt_at, created_at)
    SELECT _tenant, _turn.id || '-' || (p.n - 1), _turn.owner_id, _turn.id, _given.platform, recipient, p.payload,
        'waiting', threadline.from_us(_now_us), threadline.from_us(_now_us)
    FROM unnest(_given.payloads) WITH ORDINALITY AS p (payload, n) ORDER BY p.n
    ON CONFLICT DO NOTHING;
    UPDATE threadline.inbox i SET status = 'done', decision = _turn.status, turn_id = _turn.id,
        updated_at = threadline.from_us(_now_us)
    WHERE i.tenant_id = _tenant AND i.platform = _given.platform AND i.key = _given.arrival_key;
END $$;
