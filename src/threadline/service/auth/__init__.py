"""Authentication and authorization: tokens, JWT, impersonation and rate limits."""
