-- oldest compatible: 18
--
-- Messages, or parts of them (part -1: the whole message), that no read shows. turn_id names the turn that was deleted with
-- them, if one was. A version 17 program would show them.

CREATE TABLE hidden_parts (
    timeline_no INTEGER NOT NULL REFERENCES timelines (no),
    seq INTEGER NOT NULL,
    part INTEGER NOT NULL,
    turn_id TEXT,
    hidden_us INTEGER NOT NULL,
    PRIMARY KEY (timeline_no, seq, part)
) STRICT, WITHOUT ROWID;
CREATE INDEX hidden_parts_by_turn ON hidden_parts (turn_id) WHERE turn_id IS NOT NULL;
