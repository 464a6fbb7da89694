-- oldest compatible: 19
--
-- The turn that a request may be taken into while it runs. A version 19 program answers such a request after it.

ALTER TABLE turns ADD COLUMN steers TEXT;
