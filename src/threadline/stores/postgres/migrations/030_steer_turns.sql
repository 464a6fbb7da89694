-- oldest compatible: 29
--
-- The turn that a request may be taken into while it runs. A version 29 program answers such a request after it.

ALTER TABLE threadline.turns ADD COLUMN steers text COLLATE "C";
