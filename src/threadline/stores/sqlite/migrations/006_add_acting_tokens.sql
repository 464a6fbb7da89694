-- oldest compatible: 4
--
-- Tokens that act for the users of their tenant. To an older program they are their own user's and nobody else's.

ALTER TABLE api_tokens ADD COLUMN acts_for_users INTEGER NOT NULL DEFAULT 0 CHECK (acts_for_users IN (0, 1));
