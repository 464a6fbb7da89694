-- name: add_usage
INSERT INTO usage_days (tenant_id, owner_id, day, agent_id, provider, model, turns, input_tokens, output_tokens,
    cached_tokens, reasoning_tokens, cost_nanos, kind)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant_id, owner_id, day, agent_id, provider, model, kind) DO UPDATE SET turns = turns + excluded.turns,
    input_tokens = input_tokens + excluded.input_tokens,
    output_tokens = output_tokens + excluded.output_tokens,
    cached_tokens = cached_tokens + excluded.cached_tokens,
    reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens,
    cost_nanos = CASE
        WHEN excluded.cost_nanos IS NULL THEN cost_nanos ELSE coalesce(cost_nanos, 0) + excluded.cost_nanos
    END;

-- name: sum_tenant_usage
SELECT CASE WHEN ?6 THEN day END AS day, CASE WHEN ?7 THEN owner_id END AS user_id,
    CASE WHEN ?8 THEN agent_id END AS agent_id, CASE WHEN ?9 THEN provider END AS provider,
    CASE WHEN ?9 THEN model END AS model, CASE WHEN ?10 THEN kind END AS kind, sum(turns) AS turns,
    sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens, sum(cached_tokens) AS cached_tokens,
    sum(reasoning_tokens) AS reasoning_tokens, sum(cost_nanos) AS cost_nanos
FROM usage_days INDEXED BY usage_days_by_day
WHERE tenant_id = ?1 AND ?4 IS NULL AND day BETWEEN ?2 AND ?3 AND (?5 IS NULL OR agent_id = ?5)
GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6;

-- name: sum_user_usage
SELECT CASE WHEN ?6 THEN day END AS day, CASE WHEN ?7 THEN owner_id END AS user_id,
    CASE WHEN ?8 THEN agent_id END AS agent_id, CASE WHEN ?9 THEN provider END AS provider,
    CASE WHEN ?9 THEN model END AS model, CASE WHEN ?10 THEN kind END AS kind, sum(turns) AS turns,
    sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens, sum(cached_tokens) AS cached_tokens,
    sum(reasoning_tokens) AS reasoning_tokens, sum(cost_nanos) AS cost_nanos
FROM usage_days
WHERE tenant_id = ?1 AND owner_id = ?4 AND day BETWEEN ?2 AND ?3 AND (?5 IS NULL OR agent_id = ?5)
GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6;
