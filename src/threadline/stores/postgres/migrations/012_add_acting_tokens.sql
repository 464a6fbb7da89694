-- oldest compatible: 10
--
-- Tokens that act for the users of their tenant. To an older program they are their own user's and nobody else's.

ALTER TABLE threadline.api_tokens ADD COLUMN acts_for_users boolean NOT NULL DEFAULT false;
