-- oldest compatible: 13
--
-- Users whose access has ended. A version 12 program would let them in.

ALTER TABLE users ADD COLUMN disabled_us INTEGER;
