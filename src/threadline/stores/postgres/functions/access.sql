-- Every request with a token calls this.
CREATE FUNCTION threadline.find_token(_tenant text, _owner text, _role text, _hash bytea)
RETURNS SETOF threadline.api_tokens LANGUAGE plpgsql AS $$
BEGIN
    PERFORM threadline.enter_scope(_tenant, _owner, _role);
    RETURN QUERY SELECT * FROM threadline.api_tokens t WHERE t.tenant_id = _tenant AND t.token_hash = _hash;
END $$;

-- Returns how many of the wanted permits are granted. FOR UPDATE serializes callers of the same key.
CREATE FUNCTION threadline.take_permits(
    _tenant text, _owner text, _role text, _key text, _window_us bigint, _wanted integer, _limit integer
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    current timestamptz;
    before integer;
    given integer;
BEGIN
    PERFORM threadline.enter_scope(_tenant, _owner, _role);
    INSERT INTO threadline.permits (tenant_id, key, window_at, taken)
    VALUES (_tenant, _key, threadline.from_us(_window_us), 0) ON CONFLICT DO NOTHING;
    SELECT p.window_at, p.taken INTO current, before FROM threadline.permits p
    WHERE p.tenant_id = _tenant AND p.key = _key FOR UPDATE;
    IF current < threadline.from_us(_window_us) THEN
        current := threadline.from_us(_window_us);
        before := 0;
    END IF;
    given := greatest(0, least(_wanted, _limit - before));
    UPDATE threadline.permits p SET window_at = current, taken = before + given
    WHERE p.tenant_id = _tenant AND p.key = _key;
    RETURN given;
END $$;

-- Every request with a JWT, and every request on behalf of a user, calls this.
CREATE FUNCTION threadline.find_user(_tenant text, _owner text, _role text, _id text)
RETURNS SETOF threadline.users LANGUAGE plpgsql AS $$
BEGIN
    PERFORM threadline.enter_scope(_tenant, _owner, _role);
    RETURN QUERY SELECT * FROM threadline.users u WHERE u.tenant_id = _tenant AND u.id = _id;
END $$;

-- Every request of a signed-in person calls this.
CREATE FUNCTION threadline.find_sign_in(_tenant text, _owner text, _role text, _hash bytea)
RETURNS SETOF threadline.sign_ins LANGUAGE plpgsql AS $$
BEGIN
    PERFORM threadline.enter_scope(_tenant, _owner, _role);
    RETURN QUERY SELECT s.* FROM threadline.sign_ins s
    WHERE s.tenant_id = _tenant AND s.secret_hash = _hash AND NOT EXISTS (
        SELECT FROM threadline.users u WHERE u.tenant_id = _tenant AND u.id = s.owner_id AND u.disabled_at IS NOT NULL
    );
END $$;
