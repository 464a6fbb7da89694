-- Hides messages or parts of them, and removes the summaries that cover them. Returns how many marks are new; null if the
-- thread does not exist, -n if no history of the thread has a message at place n.
CREATE FUNCTION threadline.hide_parts(
    _tenant text, _owner text, _role text, _now_us bigint, _thread text, _timelines text[], _seqs integer[],
    _parts integer[], _turn text
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
    holder text;
    added integer := 0;
BEGIN
    -- Locked, so that a purge or a reply that copies later messages comes before or after.
    SELECT t.owner_id INTO holder FROM threadline.threads t
    WHERE t.tenant_id = _tenant AND t.id = _thread AND t.deleted_at IS NULL FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    FOR at IN 1..cardinality(_seqs) LOOP
        PERFORM FROM threadline.messages m
        WHERE m.tenant_id = _tenant AND m.timeline_id = _timelines[at] AND m.seq = _seqs[at] AND EXISTS (
            SELECT FROM threadline.timelines l WHERE l.tenant_id = _tenant AND l.thread_id = _thread
                AND (l.id = m.timeline_id OR m.seq <= l.ancestor_seqs[array_position(l.ancestors, m.timeline_id)])
        );
        IF NOT FOUND THEN
            RETURN -at;
        END IF;
    END LOOP;
    -- One by one, because Citus counts rows of an INSERT with SELECT that were there before as inserted.
    FOR at IN 1..cardinality(_seqs) LOOP
        INSERT INTO threadline.hidden_parts (tenant_id, timeline_id, seq, part, owner_id, turn_id, hidden_at)
        VALUES (_tenant, _timelines[at], _seqs[at], _parts[at], holder, _turn, threadline.from_us(_now_us))
        ON CONFLICT DO NOTHING;
        added := added + FOUND::integer;
    END LOOP;
    UPDATE threadline.hidden_parts h SET turn_id = _turn
    FROM unnest(_timelines, _seqs, _parts) AS g (timeline_id, seq, part)
    WHERE _turn IS NOT NULL AND h.tenant_id = _tenant
        AND h.timeline_id = g.timeline_id AND h.seq = g.seq AND h.part = g.part;
    DELETE FROM threadline.summaries s USING threadline.timelines l, unnest(_timelines, _seqs) AS g (timeline_id, seq)
    WHERE s.tenant_id = _tenant AND l.tenant_id = _tenant AND l.owner_id = holder AND l.id = s.timeline_id
        AND s.seq >= g.seq
        AND (l.id = g.timeline_id OR l.ancestor_seqs[array_position(l.ancestors, g.timeline_id)] >= g.seq);
    RETURN added;
END $$;

CREATE FUNCTION threadline.is_turn_hidden(_tenant text, _owner text, _role text, _turn text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    entered constant boolean := threadline.enter_scope(_tenant, _owner, _role);
BEGIN
    RETURN EXISTS (SELECT FROM threadline.hidden_parts h WHERE h.tenant_id = _tenant AND h.turn_id = _turn);
END $$;
