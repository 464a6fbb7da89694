-- oldest compatible: 23
--
-- Users whose access has ended. A version 22 program would let them in.

ALTER TABLE threadline.users ADD COLUMN disabled_at timestamptz;
