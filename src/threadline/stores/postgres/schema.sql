-- What the migrations produce. Written by `python tools/schema.py`; a test compares it with a database.

CREATE TABLE threadline.agents (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    provider text NOT NULL,
    model text,
    settings bytea,
    system_prompt text,
    enabled boolean NOT NULL DEFAULT true,
    CONSTRAINT agents_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT agents_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES threadline.tenants(tenant_id)
);

ALTER TABLE threadline.agents FORCE ROW LEVEL SECURITY;

CREATE POLICY of_owner ON threadline.agents TO threadline_app USING ((tenant_id = threadline.this_tenant()));

CREATE POLICY of_tenant ON threadline.agents TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.agents TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.agents TO threadline_worker;

CREATE TABLE threadline.api_tokens (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    token_hash bytea NOT NULL,
    name text NOT NULL,
    role text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    last_used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    acts_for_users boolean NOT NULL DEFAULT false,
    CONSTRAINT api_tokens_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT api_tokens_role_check CHECK ((role = ANY (ARRAY['viewer'::text, 'member'::text, 'admin'::text]))),
    CONSTRAINT api_tokens_tenant_id_owner_id_fkey FOREIGN KEY (tenant_id, owner_id) REFERENCES threadline.users(tenant_id, id),
    CONSTRAINT api_tokens_tenant_id_token_hash_key UNIQUE (tenant_id, token_hash)
);

ALTER TABLE threadline.api_tokens FORCE ROW LEVEL SECURITY;

CREATE INDEX api_tokens_by_owner ON threadline.api_tokens USING btree (tenant_id, owner_id);

CREATE POLICY of_owner ON threadline.api_tokens TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.api_tokens TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.api_tokens TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.api_tokens TO threadline_worker;

CREATE TABLE threadline.append_keys (
    tenant_id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    fingerprint bytea NOT NULL,
    timeline_id text COLLATE "C" NOT NULL,
    first_seq integer NOT NULL,
    messages integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT append_keys_pkey PRIMARY KEY (tenant_id, thread_id, key)
);

ALTER TABLE threadline.append_keys FORCE ROW LEVEL SECURITY;

CREATE POLICY of_owner ON threadline.append_keys TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.append_keys TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.append_keys TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.append_keys TO threadline_worker;

CREATE TABLE threadline.audit (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    actor_id text COLLATE "C" NOT NULL,
    act text COLLATE "C" NOT NULL,
    target text NOT NULL,
    details bytea,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT audit_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT audit_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES threadline.tenants(tenant_id)
);

ALTER TABLE threadline.audit FORCE ROW LEVEL SECURITY;

CREATE POLICY of_owner ON threadline.audit TO threadline_app USING (false) WITH CHECK (((tenant_id = threadline.this_tenant()) AND COALESCE((actor_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.audit TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT ON threadline.audit TO threadline_worker;

GRANT INSERT, SELECT ON threadline.audit TO threadline_app;

CREATE TABLE threadline.bindings (
    tenant_id text COLLATE "C" NOT NULL,
    surface text COLLATE "C" NOT NULL,
    place text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    label text,
    metadata bytea,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    CONSTRAINT bindings_pkey PRIMARY KEY (tenant_id, surface, place),
    CONSTRAINT bindings_tenant_id_thread_id_fkey FOREIGN KEY (tenant_id, thread_id) REFERENCES threadline.threads(tenant_id, id)
);

ALTER TABLE threadline.bindings FORCE ROW LEVEL SECURITY;

CREATE INDEX bindings_by_owner ON threadline.bindings USING btree (tenant_id, owner_id);

CREATE INDEX bindings_by_thread ON threadline.bindings USING btree (tenant_id, thread_id);

CREATE POLICY of_owner ON threadline.bindings TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.bindings TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.bindings TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.bindings TO threadline_worker;

CREATE TABLE threadline.context_snapshots (
    tenant_id text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    context text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    CONSTRAINT context_snapshots_pkey PRIMARY KEY (tenant_id, owner_id, agent_id),
    CONSTRAINT context_snapshots_tenant_id_owner_id_fkey FOREIGN KEY (tenant_id, owner_id) REFERENCES threadline.users(tenant_id, id)
);

ALTER TABLE threadline.context_snapshots FORCE ROW LEVEL SECURITY;

CREATE POLICY of_owner ON threadline.context_snapshots TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.context_snapshots TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.context_snapshots TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.context_snapshots TO threadline_worker;

CREATE TABLE threadline.credentials (
    tenant_id text COLLATE "C" NOT NULL,
    platform text COLLATE "C" NOT NULL,
    key_id text NOT NULL,
    sealed bytea NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    CONSTRAINT credentials_pkey PRIMARY KEY (tenant_id, platform),
    CONSTRAINT credentials_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES threadline.tenants(tenant_id)
);

ALTER TABLE threadline.credentials FORCE ROW LEVEL SECURITY;

CREATE POLICY of_owner ON threadline.credentials TO threadline_app USING (false);

CREATE POLICY of_tenant ON threadline.credentials TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.credentials TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.credentials TO threadline_worker;

CREATE TABLE threadline.function_files (
    subject text COLLATE "C" NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT function_files_pkey PRIMARY KEY (subject)
);

GRANT SELECT ON threadline.function_files TO public;

CREATE TABLE threadline.hidden_parts (
    tenant_id text COLLATE "C" NOT NULL,
    timeline_id text COLLATE "C" NOT NULL,
    seq integer NOT NULL,
    part integer NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C",
    hidden_at timestamp with time zone NOT NULL,
    CONSTRAINT hidden_parts_pkey PRIMARY KEY (tenant_id, timeline_id, seq, part),
    CONSTRAINT hidden_parts_tenant_id_timeline_id_fkey FOREIGN KEY (tenant_id, timeline_id) REFERENCES threadline.timelines(tenant_id, id)
);

ALTER TABLE threadline.hidden_parts FORCE ROW LEVEL SECURITY;

CREATE INDEX hidden_parts_by_owner ON threadline.hidden_parts USING btree (tenant_id, owner_id);

CREATE INDEX hidden_parts_by_turn ON threadline.hidden_parts USING btree (tenant_id, turn_id) WHERE (turn_id IS NOT NULL);

CREATE POLICY of_owner ON threadline.hidden_parts TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.hidden_parts TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.hidden_parts TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.hidden_parts TO threadline_worker;

CREATE TABLE threadline.inbox (
    tenant_id text COLLATE "C" NOT NULL,
    platform text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C",
    status text NOT NULL,
    decision text,
    turn_id text COLLATE "C",
    fingerprint text,
    correlation_id text,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    reply_to text,
    CONSTRAINT inbox_pkey PRIMARY KEY (tenant_id, platform, key),
    CONSTRAINT inbox_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES threadline.tenants(tenant_id)
);

ALTER TABLE threadline.inbox FORCE ROW LEVEL SECURITY;

CREATE INDEX inbox_by_age ON threadline.inbox USING btree (tenant_id, created_at);

CREATE INDEX inbox_by_owner ON threadline.inbox USING btree (tenant_id, owner_id);

CREATE INDEX inbox_open ON threadline.inbox USING btree (tenant_id, created_at) WHERE (status = 'accepted'::text);

CREATE POLICY of_owner ON threadline.inbox TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.inbox TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.inbox TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.inbox TO threadline_worker;

CREATE TABLE threadline.legal_holds (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    created_by text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    owner_id text COLLATE "C",
    thread_id text COLLATE "C",
    CONSTRAINT legal_holds_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT legal_holds_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES threadline.tenants(tenant_id)
);

ALTER TABLE threadline.legal_holds FORCE ROW LEVEL SECURITY;

CREATE POLICY of_owner ON threadline.legal_holds TO threadline_app USING (false);

CREATE POLICY of_tenant ON threadline.legal_holds TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT ON threadline.legal_holds TO threadline_app;

GRANT DELETE, INSERT, SELECT ON threadline.legal_holds TO threadline_worker;

CREATE TABLE threadline.link_codes (
    tenant_id text COLLATE "C" NOT NULL,
    code_hash bytea NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    platform text COLLATE "C",
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT link_codes_pkey PRIMARY KEY (tenant_id, code_hash),
    CONSTRAINT link_codes_tenant_id_owner_id_fkey FOREIGN KEY (tenant_id, owner_id) REFERENCES threadline.users(tenant_id, id)
);

ALTER TABLE threadline.link_codes FORCE ROW LEVEL SECURITY;

CREATE INDEX link_codes_by_owner ON threadline.link_codes USING btree (tenant_id, owner_id);

CREATE POLICY of_owner ON threadline.link_codes TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.link_codes TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.link_codes TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.link_codes TO threadline_worker;

CREATE TABLE threadline.links (
    tenant_id text COLLATE "C" NOT NULL,
    platform text COLLATE "C" NOT NULL,
    platform_user_id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    state text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    CONSTRAINT links_pkey PRIMARY KEY (tenant_id, platform, platform_user_id),
    CONSTRAINT links_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'verified'::text, 'revoked'::text]))),
    CONSTRAINT links_tenant_id_owner_id_fkey FOREIGN KEY (tenant_id, owner_id) REFERENCES threadline.users(tenant_id, id)
);

ALTER TABLE threadline.links FORCE ROW LEVEL SECURITY;

CREATE INDEX links_by_owner ON threadline.links USING btree (tenant_id, owner_id);

CREATE POLICY of_owner ON threadline.links TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.links TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.links TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.links TO threadline_worker;

CREATE TABLE threadline.message_search (
    tenant_id text COLLATE "C" NOT NULL,
    timeline_id text COLLATE "C" NOT NULL,
    seq integer NOT NULL,
    size integer NOT NULL,
    created_us bigint NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    words tsvector NOT NULL,
    CONSTRAINT message_search_pkey PRIMARY KEY (tenant_id, timeline_id, seq),
    CONSTRAINT message_search_tenant_id_timeline_id_fkey FOREIGN KEY (tenant_id, timeline_id) REFERENCES threadline.timelines(tenant_id, id)
) WITH (autovacuum_vacuum_insert_threshold=10000);

ALTER TABLE threadline.message_search FORCE ROW LEVEL SECURITY;

CREATE INDEX message_search_words ON threadline.message_search USING gin (words) WITH (gin_pending_list_limit='1024');

CREATE POLICY every_row ON threadline.message_search FOR SELECT TO threadline_search USING (true);

CREATE POLICY of_owner ON threadline.message_search TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.message_search TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.message_search TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.message_search TO threadline_worker;

GRANT SELECT ON threadline.message_search TO threadline_search;

CREATE TABLE threadline.messages (
    created_us bigint NOT NULL,
    seq integer NOT NULL,
    role "char" NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    timeline_id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C",
    parts bytea STORAGE e NOT NULL,
    metadata bytea STORAGE e,
    CONSTRAINT messages_pkey PRIMARY KEY (tenant_id, timeline_id, seq),
    CONSTRAINT messages_tenant_id_timeline_id_fkey FOREIGN KEY (tenant_id, timeline_id) REFERENCES threadline.timelines(tenant_id, id)
) WITH (toast_tuple_target=8160);

ALTER TABLE threadline.messages FORCE ROW LEVEL SECURITY;

CREATE INDEX messages_by_id ON threadline.messages USING btree (tenant_id, id);

CREATE POLICY of_owner ON threadline.messages TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = ( SELECT threadline.this_owner() AS this_owner)), false)));

CREATE POLICY of_tenant ON threadline.messages TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT ON threadline.messages TO threadline_app;

GRANT DELETE, INSERT, SELECT ON threadline.messages TO threadline_worker;

CREATE TABLE threadline.migrations (
    number integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    oldest_compatible integer NOT NULL,
    applied_at timestamp with time zone NOT NULL DEFAULT now(),
    CONSTRAINT migrations_pkey PRIMARY KEY (number)
);

GRANT SELECT ON threadline.migrations TO public;

CREATE TABLE threadline.outbox (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    place bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    owner_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C",
    platform text COLLATE "C" NOT NULL,
    recipient text NOT NULL,
    payload text NOT NULL,
    status text NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    next_attempt_at timestamp with time zone NOT NULL,
    claimed_by text,
    claimed_until timestamp with time zone,
    last_error text,
    created_at timestamp with time zone NOT NULL,
    sent_at timestamp with time zone,
    requeued_at timestamp with time zone,
    message_id text,
    CONSTRAINT outbox_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT outbox_status_check CHECK ((status = ANY (ARRAY['waiting'::text, 'claimed'::text, 'sent'::text, 'dead'::text, 'window_closed'::text]))),
    CONSTRAINT outbox_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES threadline.tenants(tenant_id)
);

ALTER TABLE threadline.outbox FORCE ROW LEVEL SECURITY;

CREATE INDEX outbox_by_owner ON threadline.outbox USING btree (tenant_id, owner_id, place);

CREATE INDEX outbox_by_place ON threadline.outbox USING btree (tenant_id, place);

CREATE INDEX outbox_by_recipient ON threadline.outbox USING btree (tenant_id, platform, recipient, place) WHERE (status = ANY (ARRAY['waiting'::text, 'claimed'::text]));

CREATE INDEX outbox_due ON threadline.outbox USING btree (tenant_id, place) WHERE (status = ANY (ARRAY['waiting'::text, 'claimed'::text]));

CREATE INDEX outbox_undelivered ON threadline.outbox USING btree (tenant_id, platform, recipient, place) WHERE (status = ANY (ARRAY['dead'::text, 'window_closed'::text]));

CREATE POLICY of_owner ON threadline.outbox TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.outbox TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.outbox TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.outbox TO threadline_worker;

CREATE TABLE threadline.permits (
    tenant_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    window_at timestamp with time zone NOT NULL,
    taken integer NOT NULL,
    CONSTRAINT permits_pkey PRIMARY KEY (tenant_id, key)
);

ALTER TABLE threadline.permits FORCE ROW LEVEL SECURITY;

CREATE POLICY of_owner ON threadline.permits TO threadline_app USING (false);

CREATE POLICY of_tenant ON threadline.permits TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.permits TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.permits TO threadline_worker;

CREATE TABLE threadline.saved_points (
    tenant_id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    timeline_id text COLLATE "C" NOT NULL,
    seq integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT saved_points_pkey PRIMARY KEY (tenant_id, owner_id, name)
);

ALTER TABLE threadline.saved_points FORCE ROW LEVEL SECURITY;

CREATE INDEX saved_points_by_thread ON threadline.saved_points USING btree (tenant_id, thread_id);

CREATE POLICY of_owner ON threadline.saved_points TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.saved_points TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.saved_points TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.saved_points TO threadline_worker;

CREATE TABLE threadline.search_backlog (
    tenant_id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    timeline_id text COLLATE "C" NOT NULL,
    first_seq integer NOT NULL,
    last_seq integer NOT NULL,
    CONSTRAINT search_backlog_pkey PRIMARY KEY (tenant_id, owner_id, timeline_id, first_seq),
    CONSTRAINT search_backlog_tenant_id_timeline_id_fkey FOREIGN KEY (tenant_id, timeline_id) REFERENCES threadline.timelines(tenant_id, id)
);

ALTER TABLE threadline.search_backlog FORCE ROW LEVEL SECURITY;

CREATE POLICY of_owner ON threadline.search_backlog TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.search_backlog TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.search_backlog TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.search_backlog TO threadline_worker;

CREATE TABLE threadline.sign_ins (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    secret_hash bytea NOT NULL,
    role text NOT NULL,
    method text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    opened_at timestamp with time zone,
    last_seen_at timestamp with time zone,
    revoked_at timestamp with time zone,
    device text,
    CONSTRAINT sign_ins_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT sign_ins_role_check CHECK ((role = ANY (ARRAY['viewer'::text, 'member'::text, 'admin'::text]))),
    CONSTRAINT sign_ins_tenant_id_owner_id_fkey FOREIGN KEY (tenant_id, owner_id) REFERENCES threadline.users(tenant_id, id),
    CONSTRAINT sign_ins_tenant_id_secret_hash_key UNIQUE (tenant_id, secret_hash)
);

ALTER TABLE threadline.sign_ins FORCE ROW LEVEL SECURITY;

CREATE INDEX sign_ins_by_owner ON threadline.sign_ins USING btree (tenant_id, owner_id);

CREATE POLICY of_owner ON threadline.sign_ins TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.sign_ins TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.sign_ins TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.sign_ins TO threadline_worker;

CREATE TABLE threadline.stored_values (
    tenant_id text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    scope_id text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    n integer NOT NULL,
    owner_id text COLLATE "C",
    version bigint NOT NULL,
    size integer NOT NULL,
    key_id text COLLATE "C",
    updated_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    piece bytea NOT NULL,
    CONSTRAINT stored_values_pkey PRIMARY KEY (tenant_id, scope, scope_id, namespace, key, n),
    CONSTRAINT stored_values_scope_check CHECK ((scope = ANY (ARRAY['thread'::text, 'user'::text, 'tenant'::text]))),
    CONSTRAINT stored_values_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES threadline.tenants(tenant_id),
    CONSTRAINT stored_values_tenant_id_owner_id_fkey FOREIGN KEY (tenant_id, owner_id) REFERENCES threadline.users(tenant_id, id)
);

ALTER TABLE threadline.stored_values FORCE ROW LEVEL SECURITY;

CREATE INDEX stored_values_by_expiry ON threadline.stored_values USING btree (tenant_id, expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX stored_values_by_owner ON threadline.stored_values USING btree (tenant_id, owner_id) WHERE (owner_id IS NOT NULL);

CREATE POLICY of_owner ON threadline.stored_values TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), (scope = 'tenant'::text))));

CREATE POLICY of_tenant ON threadline.stored_values TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.stored_values TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.stored_values TO threadline_worker;

CREATE TABLE threadline.summaries (
    tenant_id text COLLATE "C" NOT NULL,
    timeline_id text COLLATE "C" NOT NULL,
    seq integer NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    text text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    source text NOT NULL DEFAULT 'extract'::text,
    model text,
    CONSTRAINT summaries_pkey PRIMARY KEY (tenant_id, timeline_id, seq),
    CONSTRAINT summaries_tenant_id_timeline_id_fkey FOREIGN KEY (tenant_id, timeline_id) REFERENCES threadline.timelines(tenant_id, id)
);

ALTER TABLE threadline.summaries FORCE ROW LEVEL SECURITY;

CREATE POLICY of_owner ON threadline.summaries TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.summaries TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.summaries TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.summaries TO threadline_worker;

CREATE TABLE threadline.tenant_purges (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    actor_id text NOT NULL,
    details bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT tenant_purges_pkey PRIMARY KEY (tenant_id, id)
);

ALTER TABLE threadline.tenant_purges FORCE ROW LEVEL SECURITY;

CREATE POLICY of_owner ON threadline.tenant_purges TO threadline_app USING (false);

CREATE POLICY of_tenant ON threadline.tenant_purges TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT INSERT, SELECT ON threadline.tenant_purges TO threadline_app;

GRANT INSERT, SELECT ON threadline.tenant_purges TO threadline_worker;

CREATE TABLE threadline.tenants (
    tenant_id text COLLATE "C" NOT NULL,
    name text,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT tenants_pkey PRIMARY KEY (tenant_id)
);

ALTER TABLE threadline.tenants FORCE ROW LEVEL SECURITY;

CREATE POLICY each_tenant ON threadline.tenants FOR SELECT TO threadline_worker USING (true);

CREATE POLICY of_owner ON threadline.tenants TO threadline_app USING ((tenant_id = threadline.this_tenant()));

CREATE POLICY of_tenant ON threadline.tenants TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.tenants TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.tenants TO threadline_worker;

CREATE TABLE threadline.thread_labels (
    tenant_id text COLLATE "C" NOT NULL,
    label text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    CONSTRAINT thread_labels_pkey PRIMARY KEY (tenant_id, label, owner_id, thread_id),
    CONSTRAINT thread_labels_tenant_id_thread_id_fkey FOREIGN KEY (tenant_id, thread_id) REFERENCES threadline.threads(tenant_id, id)
);

ALTER TABLE threadline.thread_labels FORCE ROW LEVEL SECURITY;

CREATE INDEX thread_labels_by_thread ON threadline.thread_labels USING btree (tenant_id, thread_id);

CREATE POLICY of_owner ON threadline.thread_labels TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.thread_labels TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.thread_labels TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.thread_labels TO threadline_worker;

CREATE TABLE threadline.threads (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    state_key text COLLATE "C" NOT NULL,
    timeline_id text COLLATE "C" NOT NULL,
    title text,
    title_by_person boolean NOT NULL DEFAULT false,
    agent_id text COLLATE "C",
    model text,
    system_prompt text,
    working_dir text,
    metadata bytea,
    message_count integer NOT NULL DEFAULT 0,
    indexed_count integer NOT NULL DEFAULT 0,
    token_count bigint NOT NULL DEFAULT 0,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    archived_at timestamp with time zone,
    deleted_at timestamp with time zone,
    compacting_until timestamp with time zone,
    indexed_title text,
    CONSTRAINT threads_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT threads_tenant_id_owner_id_fkey FOREIGN KEY (tenant_id, owner_id) REFERENCES threadline.users(tenant_id, id)
);

ALTER TABLE threadline.threads FORCE ROW LEVEL SECURITY;

CREATE INDEX threads_deleted ON threadline.threads USING btree (tenant_id, owner_id, updated_at DESC, id DESC) WHERE (deleted_at IS NOT NULL);

CREATE INDEX threads_living ON threadline.threads USING btree (tenant_id, owner_id, updated_at DESC, id DESC) WHERE (deleted_at IS NULL);

CREATE INDEX threads_titles_to_index ON threadline.threads USING btree (tenant_id, owner_id) WHERE (title IS DISTINCT FROM indexed_title);

CREATE INDEX threads_to_index ON threadline.threads USING btree (tenant_id, owner_id) WHERE (indexed_count < message_count);

CREATE UNIQUE INDEX threads_state_key ON threadline.threads USING btree (tenant_id, owner_id, state_key) WHERE (deleted_at IS NULL);

CREATE POLICY of_owner ON threadline.threads TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.threads TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.threads TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.threads TO threadline_worker;

CREATE TABLE threadline.timelines (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C",
    parent_id text COLLATE "C",
    parent_seq integer,
    ancestors text[] COLLATE "C" NOT NULL DEFAULT '{}'::text[],
    ancestor_seqs integer[] NOT NULL DEFAULT '{}'::integer[],
    nearest text[] COLLATE "C" NOT NULL DEFAULT '{}'::text[],
    nearest_seqs integer[] NOT NULL DEFAULT '{}'::integer[],
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT timelines_pkey PRIMARY KEY (tenant_id, id)
);

ALTER TABLE threadline.timelines FORCE ROW LEVEL SECURITY;

CREATE INDEX timelines_by_nearest ON threadline.timelines USING btree (tenant_id, (nearest[1])) WHERE (cardinality(nearest) > 0);

CREATE INDEX timelines_by_thread ON threadline.timelines USING btree (tenant_id, thread_id);

CREATE INDEX timelines_left_over ON threadline.timelines USING btree (tenant_id, owner_id) WHERE (thread_id IS NULL);

CREATE POLICY of_owner ON threadline.timelines TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.timelines TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.timelines TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.timelines TO threadline_worker;

CREATE TABLE threadline.title_search (
    tenant_id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    words tsvector NOT NULL,
    CONSTRAINT title_search_pkey PRIMARY KEY (tenant_id, thread_id),
    CONSTRAINT title_search_tenant_id_thread_id_fkey FOREIGN KEY (tenant_id, thread_id) REFERENCES threadline.threads(tenant_id, id) ON DELETE CASCADE
);

ALTER TABLE threadline.title_search FORCE ROW LEVEL SECURITY;

CREATE INDEX title_search_words ON threadline.title_search USING gin (words);

CREATE POLICY every_row ON threadline.title_search FOR SELECT TO threadline_search USING (true);

CREATE POLICY of_owner ON threadline.title_search TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.title_search TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.title_search TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.title_search TO threadline_worker;

GRANT SELECT ON threadline.title_search TO threadline_search;

CREATE TABLE threadline.tool_runs (
    tenant_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    call_id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    place bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL,
    input bytea NOT NULL,
    repeatable boolean NOT NULL,
    output bytea,
    finished_at timestamp with time zone,
    CONSTRAINT tool_runs_pkey PRIMARY KEY (tenant_id, turn_id, call_id),
    CONSTRAINT tool_runs_tenant_id_turn_id_fkey FOREIGN KEY (tenant_id, turn_id) REFERENCES threadline.turns(tenant_id, id)
);

ALTER TABLE threadline.tool_runs FORCE ROW LEVEL SECURITY;

CREATE POLICY of_owner ON threadline.tool_runs TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.tool_runs TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.tool_runs TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.tool_runs TO threadline_worker;

CREATE TABLE threadline.turn_chunks (
    tenant_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    n integer NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    chunk bytea NOT NULL,
    CONSTRAINT turn_chunks_pkey PRIMARY KEY (tenant_id, turn_id, n),
    CONSTRAINT turn_chunks_tenant_id_turn_id_fkey FOREIGN KEY (tenant_id, turn_id) REFERENCES threadline.turns(tenant_id, id)
);

ALTER TABLE threadline.turn_chunks FORCE ROW LEVEL SECURITY;

CREATE POLICY of_owner ON threadline.turn_chunks TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.turn_chunks TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.turn_chunks TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.turn_chunks TO threadline_worker;

CREATE TABLE threadline.turns (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    place bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    surface text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C",
    status text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C",
    request_hash bytea,
    request_seq integer,
    reply_seq integer,
    error text,
    usage bytea,
    seen bytea,
    lease_owner text,
    lease_until timestamp with time zone,
    fence integer NOT NULL DEFAULT 0,
    stop_asked boolean NOT NULL DEFAULT false,
    created_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    provider text,
    model text,
    steers text COLLATE "C",
    CONSTRAINT turns_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT turns_tenant_id_thread_id_fkey FOREIGN KEY (tenant_id, thread_id) REFERENCES threadline.threads(tenant_id, id)
);

ALTER TABLE threadline.turns FORCE ROW LEVEL SECURITY;

CREATE INDEX turns_active ON threadline.turns USING btree (tenant_id, place) WHERE (status = ANY (ARRAY['accepted'::text, 'running'::text]));

CREATE INDEX turns_by_owner ON threadline.turns USING btree (tenant_id, owner_id, surface, thread_id);

CREATE INDEX turns_by_thread ON threadline.turns USING btree (tenant_id, thread_id, place);

CREATE UNIQUE INDEX turns_key ON threadline.turns USING btree (tenant_id, owner_id, idempotency_key) WHERE (idempotency_key IS NOT NULL);

CREATE POLICY of_owner ON threadline.turns TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.turns TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.turns TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.turns TO threadline_worker;

CREATE TABLE threadline.usage_days (
    tenant_id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    day integer NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    turns bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    cost_nanos bigint,
    kind text COLLATE "C" NOT NULL DEFAULT 'turn'::text,
    CONSTRAINT usage_days_pkey PRIMARY KEY (tenant_id, owner_id, day, agent_id, provider, model, kind),
    CONSTRAINT usage_days_tenant_id_owner_id_fkey FOREIGN KEY (tenant_id, owner_id) REFERENCES threadline.users(tenant_id, id)
) WITH (fillfactor=50);

ALTER TABLE threadline.usage_days FORCE ROW LEVEL SECURITY;

CREATE INDEX usage_days_by_day ON threadline.usage_days USING btree (tenant_id, day);

CREATE POLICY of_owner ON threadline.usage_days TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((owner_id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.usage_days TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.usage_days TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.usage_days TO threadline_worker;

CREATE TABLE threadline.users (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    display_name text,
    role text NOT NULL DEFAULT 'member'::text,
    created_at timestamp with time zone NOT NULL,
    indexed_messages bigint NOT NULL DEFAULT 0,
    disabled_at timestamp with time zone,
    CONSTRAINT users_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT users_role_check CHECK ((role = ANY (ARRAY['viewer'::text, 'member'::text, 'admin'::text]))),
    CONSTRAINT users_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES threadline.tenants(tenant_id)
);

ALTER TABLE threadline.users FORCE ROW LEVEL SECURITY;

CREATE POLICY of_owner ON threadline.users TO threadline_app USING (((tenant_id = threadline.this_tenant()) AND COALESCE((id = threadline.this_owner()), false)));

CREATE POLICY of_tenant ON threadline.users TO threadline_worker USING ((tenant_id = threadline.this_tenant()));

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.users TO threadline_app;

GRANT DELETE, INSERT, SELECT, UPDATE ON threadline.users TO threadline_worker;

CREATE TYPE threadline.append_args AS (thread_id text, ids text[], roles text, parts bytea[], metadata bytea[], created_us bigint[], key text, fingerprint bytea, expected_count integer, max_count integer, turn_id text, tokens integer, title text);

CREATE TYPE threadline.append_result AS (timeline_id text, first_seq integer, token_count bigint, title text);

CREATE TYPE threadline.thread_args AS (id text, state_key text, timeline_id text, title text, title_by_person boolean, agent_id text, model text, system_prompt text, working_dir text, metadata bytea);

CREATE TYPE threadline.thread_columns AS (id text, owner_id text, state_key text, timeline_id text, title text, title_by_person boolean, agent_id text, model text, system_prompt text, working_dir text, metadata bytea, message_count integer, token_count bigint, created_at timestamp with time zone, updated_at timestamp with time zone, archived_at timestamp with time zone, deleted_at timestamp with time zone);

CREATE TYPE threadline.turn_completion AS (turn_id text, fence integer, status text, ends_from text[], error text, usage text, seen text, provider text, model text, used_agent_id text, day integer, input_tokens bigint, output_tokens bigint, cached_tokens bigint, reasoning_tokens bigint, cost_nanos bigint, kind text, turns integer, chunk_numbers integer[], reply_id text, reply_metadata text, tokens integer, messages_per_thread integer, new_timeline_id text, platform text, arrival_key text, payloads text[], taken text[], taken_seen text);

CREATE TYPE threadline.turn_request AS (turn_id text, surface text, policy text, status text, agent_id text, model text, key text, request_hash bytea, thread_id text, replaces text, lease_owner text, lease_seconds double precision, is_only_reserved boolean, must_check_holder boolean, seen text, message_id text, message_role text, message_metadata text, message_created_us bigint, title text, messages_per_thread integer, new_timeline_id text, new_id text, new_state_key text, new_title text, new_title_by_person boolean, new_agent_id text, new_model text, new_system_prompt text, new_working_dir text, new_metadata text, platform text, arrival_key text, fingerprint text, correlation_id text, reply_to text, place text, is_question_checked boolean, home_place text, home_keys text[]);

CREATE FUNCTION threadline.accept_turn(_tenant text, _owner text, _role text, _now_us bigint, _request jsonb, _parts bytea, OUT outcome text, OUT turn_id text, OUT is_created boolean, OUT is_leased boolean, OUT accepted_us bigint, OUT thread threadline.threads) RETURNS record LANGUAGE plpgsql;

CREATE FUNCTION threadline.active_turns(_tenant text, _owner text, _role text, _thread text) RETURNS SETOF threadline.turns LANGUAGE plpgsql;

CREATE FUNCTION threadline.add_past_turns(_tenant text, _thread text, _owner text, _ids text[], _surfaces text[], _agents text[], _statuses text[], _errors text[], _usages bytea[], _request_seqs integer[], _reply_seqs integer[], _created timestamp with time zone[], _finished timestamp with time zone[], _providers text[], _models text[]) RETURNS void LANGUAGE plpgsql;

CREATE FUNCTION threadline.add_timeline(_tenant text, _now_us bigint, _id text, _owner text, _thread text, _parent text, _seq integer, _ids text[], _tops integer[]) RETURNS boolean LANGUAGE plpgsql;

CREATE FUNCTION threadline.add_usage(_tenant text, _owner text, _given threadline.turn_completion) RETURNS void LANGUAGE plpgsql;

CREATE FUNCTION threadline.append(_tenant text, _owner text, _role text, _now_us bigint, _new threadline.append_args, _ids_checked boolean DEFAULT false) RETURNS threadline.append_result LANGUAGE plpgsql;

CREATE FUNCTION threadline.append_after(_tenant text, _owner text, _role text, _now_us bigint, _new threadline.append_args, _after integer, _line text, _expected_timeline text, OUT problem text, OUT timeline_id text, OUT first_seq integer, OUT message_ids text[], OUT thread threadline.threads) RETURNS record LANGUAGE plpgsql;

CREATE FUNCTION threadline.append_batch(_tenant text, _owners text[], _roles text[], _now_us bigint[], _new threadline.append_args[]) RETURNS SETOF threadline.append_result LANGUAGE plpgsql;

CREATE FUNCTION threadline.append_locked(_tenant text, _owner text, _role text, _now_us bigint, _new threadline.append_args, OUT problem text, OUT timeline_id text, OUT first_seq integer, OUT message_ids text[], OUT thread threadline.threads) RETURNS record LANGUAGE plpgsql;

CREATE FUNCTION threadline.arrange(arranged regclass, settings text) RETURNS void LANGUAGE plpgsql;

CREATE FUNCTION threadline.begin_on_node(_tenant text, _owner text, _role text, _lock_timeout text, _locks_user boolean) RETURNS void LANGUAGE plpgsql;

CREATE FUNCTION threadline.branch_thread(_tenant text, _owner text, _role text, _now_us bigint, _new threadline.thread_args, _source text, _at integer, OUT problem text, OUT result threadline.threads) RETURNS record LANGUAGE plpgsql;

CREATE FUNCTION threadline.busy_tenants() RETURNS SETOF text LANGUAGE plpgsql;

CREATE FUNCTION threadline.check_request(_tenant text, _given threadline.turn_request, _parts bytea, _thread threadline.threads, OUT outcome text, OUT active_id text, OUT rewind_to integer) RETURNS record LANGUAGE plpgsql;

CREATE FUNCTION threadline.claim_arrival(_tenant text, _owner text, _now_us bigint, _given threadline.turn_request, _turn text) RETURNS boolean LANGUAGE plpgsql;

CREATE FUNCTION threadline.claim_compaction(_tenant text, _thread text, _forced boolean, _now_us bigint, _seconds double precision) RETURNS boolean LANGUAGE plpgsql;

CREATE FUNCTION threadline.claim_inbox(_tenant text, _owner text, _role text, _now_us bigint, _platform text, _key text, _fingerprint text, _correlation text, _reply_to text, _holder text) RETURNS SETOF threadline.inbox LANGUAGE plpgsql;

CREATE FUNCTION threadline.claim_outbox(_tenant text, _owner text, _role text, _worker text, _until timestamp with time zone, _now timestamp with time zone, _limit integer, _abandoned text, _platforms text[], _gone text[], _holding text[]) RETURNS SETOF threadline.outbox LANGUAGE plpgsql;

CREATE FUNCTION threadline.claim_turns(_tenant text, _owner text, _role text, _now_us bigint, _worker text, _seconds double precision, _within double precision, _always text[], _limit integer) RETURNS SETOF threadline.turns LANGUAGE plpgsql;

CREATE FUNCTION threadline.continue_interrupted(_tenant text, _owner text, _role text, _now_us bigint, _given threadline.turn_request, _thread threadline.threads, _turn threadline.turns, OUT outcome text, OUT turn_id text, OUT is_leased boolean, OUT thread threadline.threads) RETURNS record LANGUAGE plpgsql;

CREATE FUNCTION threadline.count_rows(_tenant text) RETURNS TABLE(tablename text, counted bigint) LANGUAGE plpgsql;

CREATE FUNCTION threadline.count_usage(_tenant text, _owner text, _role text, _now_us bigint, _charge jsonb) RETURNS void LANGUAGE plpgsql;

CREATE FUNCTION threadline.create_thread(_tenant text, _owner text, _role text, _now_us bigint, _new threadline.thread_args, OUT problem text, OUT result threadline.threads) RETURNS record LANGUAGE plpgsql;

CREATE FUNCTION threadline.deliver_reply(_tenant text, _now_us bigint, _given threadline.turn_completion, _turn threadline.turns) RETURNS void LANGUAGE plpgsql;

CREATE FUNCTION threadline.drop_chunks(_tenant text, _given timestamp with time zone, _age interval) RETURNS bigint LANGUAGE plpgsql;

CREATE FUNCTION threadline.drop_expired_values(_tenant text, _owner text, _role text, _now_us bigint) RETURNS bigint LANGUAGE plpgsql;

CREATE FUNCTION threadline.end_taken_turns(_tenant text, _now_us bigint, _given threadline.turn_completion, _turn threadline.turns) RETURNS void LANGUAGE plpgsql;

CREATE FUNCTION threadline.enqueue(_tenant text, _owner text, _role text, _now_us bigint, _id text, _holder text, _turn text, _platform text, _recipient text, _payload text) RETURNS SETOF threadline.outbox LANGUAGE plpgsql;

CREATE FUNCTION threadline.ensure_user(_tenant text, _user text, _now_us bigint) RETURNS void LANGUAGE plpgsql;

CREATE FUNCTION threadline.enter_scope(_tenant text, _owner text, _role text) RETURNS boolean LANGUAGE plpgsql;

CREATE FUNCTION threadline.expire_leases(_tenant text, _worker text, _turn text, _given timestamp with time zone) RETURNS SETOF text LANGUAGE plpgsql;

CREATE FUNCTION threadline.filter_threads(_tenant text, _owner text, _role text, _limit integer, _offset integer, _below_us bigint, _below_id text, _archived boolean, _deleted boolean, _labels text[], _surface text, _since_us bigint, _until_us bigint) RETURNS SETOF threadline.thread_columns LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_agent(_tenant text, _owner text, _role text, _id text) RETURNS SETOF threadline.agents LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_conflict(_tenant text, _owner text, _state_key text) RETURNS text LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_context(_tenant text, _owner text, _role text, _agent text) RETURNS SETOF threadline.context_snapshots LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_credentials(_tenant text, _owner text, _role text, _platform text) RETURNS SETOF threadline.credentials LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_in_history(_tenant text, _thread threadline.threads, _message text) RETURNS TABLE(seq integer, role "char", parts bytea) LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_live_thread(_tenant text, _thread text) RETURNS threadline.threads LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_message(_tenant text, _owner text, _role text, _thread text, _message text) RETURNS TABLE(id text, role "char", timeline_id text, seq integer, parts bytea, metadata bytea, turn_id text, created_us bigint, hidden integer[]) LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_rare_label(_tenant text, _owner text, _labels text[]) RETURNS text LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_sender(_tenant text, _owner text, _role text, _platform text, _sender text) RETURNS TABLE(owner_id text, state text, role text) LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_showing_thread(_tenant text, _timeline text, _seq integer) RETURNS text LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_sign_in(_tenant text, _owner text, _role text, _hash bytea) RETURNS SETOF threadline.sign_ins LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_summary(_tenant text, _owner text, _role text, _thread text) RETURNS TABLE(timeline_id text, seq integer, text text, created_at timestamp with time zone, source text, model text) LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_thread(_tenant text, _owner text, _role text, _id text, _state_key text, _deleted boolean) RETURNS SETOF threadline.thread_columns LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_token(_tenant text, _owner text, _role text, _hash bytea) RETURNS SETOF threadline.api_tokens LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_turn(_tenant text, _owner text, _role text, _id text) RETURNS SETOF threadline.turns LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_turn_start(_tenant text, _timeline text, _top integer, _turns integer, OUT first integer, OUT ids text[], OUT tops integer[]) RETURNS record LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_turn_thread(_tenant text, _owner text, _given threadline.turn_request, OUT outcome text, OUT must_bind boolean, OUT thread threadline.threads) RETURNS record LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_user(_tenant text, _owner text, _role text, _id text) RETURNS SETOF threadline.users LANGUAGE plpgsql;

CREATE FUNCTION threadline.find_value_owner(_tenant text, _owner text, _role text, _scope text, _scope_id text, _writes boolean, OUT problem text, OUT owner_id text) RETURNS record LANGUAGE plpgsql;

CREATE FUNCTION threadline.finish_turn(_tenant text, _owner text, _role text, _now_us bigint, _completion jsonb, _parts bytea, _chunks bytea[], OUT outcome text, OUT turn threadline.turns) RETURNS record LANGUAGE plpgsql;

CREATE FUNCTION threadline.fork_thread(_now_us bigint, _thread threadline.threads, _timeline text, _parent text, _seq integer, _ids text[], _tops integer[]) RETURNS threadline.threads LANGUAGE plpgsql;

CREATE FUNCTION threadline.from_us(_us bigint) RETURNS timestamp with time zone LANGUAGE sql STABLE;

CREATE FUNCTION threadline.has_labels(_tenant text, _owner text, _thread text, _labels text[]) RETURNS boolean LANGUAGE plpgsql STABLE;

CREATE FUNCTION threadline.has_later_request(_tenant text, _thread threadline.threads, _seq integer) RETURNS boolean LANGUAGE plpgsql;

CREATE FUNCTION threadline.has_unindexed(_tenant text, _owner text) RETURNS boolean LANGUAGE plpgsql STABLE;

CREATE FUNCTION threadline.hide_parts(_tenant text, _owner text, _role text, _now_us bigint, _thread text, _timelines text[], _seqs integer[], _parts integer[], _turn text) RETURNS integer LANGUAGE plpgsql;

CREATE FUNCTION threadline.index_messages(_tenant text, _timelines text[], _seqs integer[], _sizes integer[], _words text[]) RETURNS void LANGUAGE plpgsql;

CREATE FUNCTION threadline.index_titles(_tenant text, _threads text[], _titles text[], _words text[]) RETURNS void LANGUAGE plpgsql;

CREATE FUNCTION threadline.is_expected_head(_thread threadline.threads, _expected_count integer, _expected_timeline text) RETURNS boolean LANGUAGE sql IMMUTABLE;

CREATE FUNCTION threadline.is_stop_requested(_tenant text, _owner text, _role text, _turn text) RETURNS boolean LANGUAGE plpgsql;

CREATE FUNCTION threadline.is_turn_hidden(_tenant text, _owner text, _role text, _turn text) RETURNS boolean LANGUAGE plpgsql;

CREATE FUNCTION threadline.join_pieces(_tenant text, _scope text, _scope_id text, _namespace text, _key text, _first bytea, _piece_bytes integer) RETURNS bytea LANGUAGE plpgsql;

CREATE FUNCTION threadline.label_thread(_tenant text, _owner text, _thread text, _agent text, _metadata bytea) RETURNS boolean LANGUAGE plpgsql;

CREATE FUNCTION threadline.label_threads(_tenant text, _threads text[]) RETURNS void LANGUAGE plpgsql;

CREATE FUNCTION threadline.last_seq_of(_tenant text, _thread text, _timeline text) RETURNS integer LANGUAGE plpgsql;

CREATE FUNCTION threadline.lease_time(_tenant text, _owner text, _role text) RETURNS timestamp with time zone LANGUAGE sql STABLE;

CREATE FUNCTION threadline.lease_turn(_tenant text, _owner text, _role text, _now_us bigint, _turn text, _worker text, _seconds double precision) RETURNS SETOF threadline.turns LANGUAGE plpgsql;

CREATE FUNCTION threadline.list_tenant_threads(_tenant text, _owner text, _role text, _limit integer, _below_id text, _archived boolean, _deleted boolean, _labels text[], _surface text, _since_us bigint, _until_us bigint) RETURNS SETOF threadline.thread_columns LANGUAGE plpgsql;

CREATE FUNCTION threadline.list_threads(_tenant text, _owner text, _role text, _limit integer, _offset integer, _below_us bigint, _below_id text, _archived boolean, _deleted boolean) RETURNS SETOF threadline.thread_columns LANGUAGE plpgsql;

CREATE FUNCTION threadline.list_timelines(_tenant text, _thread text) RETURNS TABLE(id text, thread_id text, parent_id text, parent_seq integer, message_count integer, created_at timestamp with time zone) LANGUAGE plpgsql;

CREATE FUNCTION threadline.list_value_namespaces(_tenant text, _owner text, _role text, _now_us bigint, _scope text, _scope_id text) RETURNS TABLE(problem text, namespace text) LANGUAGE plpgsql;

CREATE FUNCTION threadline.list_values(_tenant text, _owner text, _role text, _now_us bigint, _scope text, _scope_id text, _namespace text, _first text, _end text, _after text, _limit integer, _descending boolean, _page_bytes bigint, _piece_bytes integer) RETURNS TABLE(problem text, key text, version bigint, size integer, key_id text, updated_at timestamp with time zone, expires_at timestamp with time zone, data bytea) LANGUAGE plpgsql;

CREATE FUNCTION threadline.load_point(_tenant text, _owner text, _role text, _now_us bigint, _thread text, _new text, _name text, _expected_count integer DEFAULT NULL::integer, _expected_timeline text DEFAULT NULL::text, OUT problem text, OUT result threadline.threads) RETURNS record LANGUAGE plpgsql;

CREATE FUNCTION threadline.lock_for_purge(_tenant text, _owner text) RETURNS void LANGUAGE plpgsql;

CREATE FUNCTION threadline.lock_user(_tenant text, _owner text) RETURNS void LANGUAGE plpgsql;

CREATE FUNCTION threadline.match_titles(_words text[], _most integer) RETURNS TABLE(thread_id text) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path=pg_catalog, pg_temp, jit=off OWNER threadline_search ACL threadline_search=X/threadline_search, threadline_app=X/threadline_search, threadline_worker=X/threadline_search;

CREATE FUNCTION threadline.match_words(_words text[], _most integer, _indexed bigint) RETURNS TABLE(timeline_id text, seq integer, size integer, created_us bigint) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path=pg_catalog, pg_temp, jit=off OWNER threadline_search ACL threadline_search=X/threadline_search, threadline_app=X/threadline_search, threadline_worker=X/threadline_search;

CREATE FUNCTION threadline.matches_filter(_tenant text, _owner text, _thread text, _labels text[], _surface text, _since_us bigint, _until_us bigint) RETURNS boolean LANGUAGE plpgsql STABLE;

CREATE FUNCTION threadline.move_thread(_tenant text, _owner text, _role text, _now_us bigint, _thread text, _new text, _seq integer, _timeline text, _expected_count integer DEFAULT NULL::integer, _expected_timeline text DEFAULT NULL::text, OUT problem text, OUT result threadline.threads) RETURNS record LANGUAGE plpgsql;

CREATE FUNCTION threadline.nearest_ranges(_timeline text, _top integer, _ids text[], _tops integer[], _most integer, OUT lines text[], OUT lows integer[], OUT highs integer[]) RETURNS record LANGUAGE plpgsql IMMUTABLE;

CREATE FUNCTION threadline.notify(_tenant text, _turn text) RETURNS void LANGUAGE sql;

CREATE FUNCTION threadline.owned_tables() RETURNS text[] LANGUAGE sql IMMUTABLE;

CREATE FUNCTION threadline.owner_mark(_tenant text, _owner text) RETURNS text LANGUAGE sql IMMUTABLE;

CREATE FUNCTION threadline.protect(guarded regclass, owner_column name, privileges text DEFAULT 'SELECT, INSERT, UPDATE, DELETE'::text, by_the_thousand boolean DEFAULT false) RETURNS void LANGUAGE plpgsql;

CREATE FUNCTION threadline.prune_threads(_tenant text, _owner text, _idle_since timestamp with time zone) RETURNS integer LANGUAGE plpgsql;

CREATE FUNCTION threadline.purge_owner(_tenant text, _owner text) RETURNS TABLE(tablename text, removed bigint) LANGUAGE plpgsql;

CREATE FUNCTION threadline.purge_tenant(_tenant text) RETURNS TABLE(tablename text, removed bigint) LANGUAGE plpgsql;

CREATE FUNCTION threadline.purge_threads(_tenant text, _ids text[]) RETURNS integer LANGUAGE plpgsql;

CREATE FUNCTION threadline.put_chunks(_tenant text, _owner text, _role text, _turn text, _fence integer, _numbers integer[], _chunks bytea[]) RETURNS boolean LANGUAGE plpgsql;

CREATE FUNCTION threadline.read_chunks(_tenant text, _owner text, _role text, _turn text, _after integer, _limit integer) RETURNS TABLE(n integer, chunk bytea) LANGUAGE plpgsql;

CREATE FUNCTION threadline.read_last_turns(_tenant text, _timeline text, _top integer, _turns integer) RETURNS TABLE(id text, role "char", timeline_id text, seq integer, parts bytea, metadata bytea, turn_id text, created_us bigint, hidden integer[]) LANGUAGE plpgsql;

CREATE FUNCTION threadline.read_messages(_tenant text, _owner text, _role text, _thread text, _timeline text, _first integer, _last integer, _limit bigint, _turns integer, _deleted boolean DEFAULT false) RETURNS TABLE(id text, role "char", timeline_id text, seq integer, parts bytea, metadata bytea, turn_id text, created_us bigint, hidden integer[]) LANGUAGE plpgsql;

CREATE FUNCTION threadline.read_newest(_tenant text, _owner text, _role text, _thread text, _last integer, _most integer) RETURNS TABLE(id text, role "char", timeline_id text, seq integer, parts bytea, metadata bytea, turn_id text, created_us bigint, hidden integer[]) LANGUAGE plpgsql;

CREATE FUNCTION threadline.read_usage(_tenant text, _owner text, _role text, _first integer, _last integer, _user text, _agent text, _by_day boolean, _by_user boolean, _by_agent boolean, _by_model boolean, _by_kind boolean) RETURNS TABLE(day integer, user_id text, agent_id text, provider text, model text, kind text, turns bigint, input_tokens bigint, output_tokens bigint, cached_tokens bigint, reasoning_tokens bigint, cost_nanos bigint) LANGUAGE plpgsql;

CREATE FUNCTION threadline.read_values(_tenant text, _owner text, _role text, _now_us bigint, _scope text, _scope_id text, _namespace text, _keys text[], _piece_bytes integer) RETURNS TABLE(problem text, key text, version bigint, size integer, key_id text, updated_at timestamp with time zone, expires_at timestamp with time zone, data bytea) LANGUAGE plpgsql;

CREATE FUNCTION threadline.release_lease(_tenant text, _turn text, _fence integer, _given timestamp with time zone) RETURNS SETOF text LANGUAGE plpgsql;

CREATE FUNCTION threadline.remove_unused_timelines(_tenant text, _owner text) RETURNS void LANGUAGE plpgsql;

CREATE FUNCTION threadline.renew_lease(_tenant text, _owner text, _role text, _now_us bigint, _turn text, _fence integer, _worker text, _seconds double precision) RETURNS boolean LANGUAGE plpgsql;

CREATE FUNCTION threadline.request_stop(_tenant text, _turn text, _given timestamp with time zone) RETURNS TABLE(thread_id text) LANGUAGE plpgsql;

CREATE FUNCTION threadline.role_in_history(_tenant text, _thread threadline.threads, _turn text, _seq integer) RETURNS "char" LANGUAGE plpgsql;

CREATE FUNCTION threadline.save_point(_tenant text, _owner text, _role text, _now_us bigint, _thread text, _name text, _at integer, OUT problem text, OUT result threadline.saved_points) RETURNS record LANGUAGE plpgsql;

CREATE FUNCTION threadline.search_messages(_tenant text, _owner text, _role text, _words text[], _most integer, _limit integer, _offset integer, _caught_up boolean, _labels text[], _surface text, _since_us bigint, _until_us bigint) RETURNS TABLE(thread_id text, state_key text, title text, message_id text, seq integer, role "char", parts bytea, created_us bigint, hidden integer[]) LANGUAGE plpgsql;

CREATE FUNCTION threadline.search_threads(_tenant text, _owner text, _role text, _words text[], _most integer, _limit integer, _offset integer, _caught_up boolean, _labels text[], _surface text, _since_us bigint, _until_us bigint, _passages integer) RETURNS TABLE(thread_id text, state_key text, title text, updated_us bigint, is_title boolean, hit_count bigint, message_id text, seq integer, role "char", parts bytea, created_us bigint, hidden integer[]) LANGUAGE plpgsql;

CREATE FUNCTION threadline.settle_outbox(_tenant text, _owner text, _role text, _now timestamp with time zone, _id text, _worker text, _status text, _next timestamp with time zone, _error text, _message_id text) RETURNS boolean LANGUAGE plpgsql;

CREATE FUNCTION threadline.shared_tables() RETURNS text[] LANGUAGE sql IMMUTABLE;

CREATE FUNCTION threadline.shared_us(_given_us bigint) RETURNS bigint LANGUAGE sql;

CREATE FUNCTION threadline.stop_turns(_tenant text, _thread text, _now_us bigint) RETURNS boolean LANGUAGE plpgsql;

CREATE FUNCTION threadline.stop_user_turns(_tenant text, _owner text, _given timestamp with time zone) RETURNS TABLE(thread_id text) LANGUAGE plpgsql;

CREATE FUNCTION threadline.store_reply(_tenant text, _owner text, _role text, _now_us bigint, _given threadline.turn_completion, _parts bytea, _thread threadline.threads, _turn threadline.turns, OUT outcome text, OUT seq integer) RETURNS record LANGUAGE plpgsql;

CREATE FUNCTION threadline.store_request(_tenant text, _owner text, _role text, _now_us bigint, _given threadline.turn_request, _parts bytea, _thread threadline.threads, _must_bind boolean, _rewind_to integer) RETURNS threadline.threads LANGUAGE plpgsql;

CREATE FUNCTION threadline.sum_usage(_tenant text, _first integer, _last integer, _user text, _agent text, _by_day boolean, _by_user boolean, _by_agent boolean, _by_model boolean, _by_kind boolean) RETURNS TABLE(day integer, user_id text, agent_id text, provider text, model text, kind text, turns bigint, input_tokens bigint, output_tokens bigint, cached_tokens bigint, reasoning_tokens bigint, cost_nanos bigint) LANGUAGE plpgsql;

CREATE FUNCTION threadline.switch_timeline(_tenant text, _owner text, _role text, _now_us bigint, _thread text, _timeline text, _expected_count integer DEFAULT NULL::integer, _expected_timeline text DEFAULT NULL::text, OUT problem text, OUT result threadline.threads) RETURNS record LANGUAGE plpgsql;

CREATE FUNCTION threadline.switch_to(_now_us bigint, _thread threadline.threads, _timeline text, _message_count integer) RETURNS threadline.threads LANGUAGE plpgsql;

CREATE FUNCTION threadline.take_permits(_tenant text, _owner text, _role text, _key text, _window_us bigint, _wanted integer, _limit integer) RETURNS integer LANGUAGE plpgsql;

CREATE FUNCTION threadline.this_owner() RETURNS text LANGUAGE sql STABLE;

CREATE FUNCTION threadline.this_tenant() RETURNS text LANGUAGE sql STABLE;

CREATE FUNCTION threadline.trim_timeline(_tenant text, _timeline text, _top integer) RETURNS void LANGUAGE plpgsql;

CREATE FUNCTION threadline.undo_turn(_tenant text, _owner text, _role text, _now_us bigint, _thread text, _new text, _expected_count integer DEFAULT NULL::integer, _expected_timeline text DEFAULT NULL::text, OUT problem text, OUT result threadline.threads) RETURNS record LANGUAGE plpgsql;

CREATE FUNCTION threadline.unindexed_messages(_tenant text, _limit integer) RETURNS TABLE(timeline_id text, seq integer, parts bytea) LANGUAGE plpgsql;

CREATE FUNCTION threadline.unindexed_titles(_tenant text, _limit integer) RETURNS TABLE(thread_id text, title text) LANGUAGE plpgsql;

CREATE FUNCTION threadline.window_at(_level integer, _indexed bigint) RETURNS bigint LANGUAGE sql IMMUTABLE;

CREATE FUNCTION threadline.window_mark(_tenant text, _owner text, _level integer, _number bigint) RETURNS text LANGUAGE sql IMMUTABLE;

CREATE FUNCTION threadline.window_marks(_tenant text, _owner text, _indexed bigint) RETURNS text[] LANGUAGE sql IMMUTABLE;

CREATE FUNCTION threadline.write_values(_tenant text, _owner text, _role text, _now_us bigint, _scopes text[], _scope_ids text[], _namespaces text[], _keys text[], _expected bigint[], _sizes integer[], _key_ids text[], _expires_us bigint[], _counts integer[], _pieces bytea[]) RETURNS TABLE(problem text, place integer, version bigint) LANGUAGE plpgsql;
