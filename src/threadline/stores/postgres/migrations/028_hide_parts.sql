-- oldest compatible: 28
--
-- Messages, or parts of them (part -1: the whole message), that no read shows. turn_id names the turn that was deleted with
-- them, if one was. A version 27 program would show them.

CREATE TABLE threadline.hidden_parts (
    tenant_id text COLLATE "C" NOT NULL,
    timeline_id text COLLATE "C" NOT NULL,
    seq integer NOT NULL,
    part integer NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C",
    hidden_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, timeline_id, seq, part),
    FOREIGN KEY (tenant_id, timeline_id) REFERENCES threadline.timelines
);
-- Every read of messages asks first whether its owner has hidden any.
CREATE INDEX hidden_parts_by_owner ON threadline.hidden_parts (tenant_id, owner_id);
CREATE INDEX hidden_parts_by_turn ON threadline.hidden_parts (tenant_id, turn_id) WHERE turn_id IS NOT NULL;
SELECT threadline.protect('threadline.hidden_parts', 'owner_id');
