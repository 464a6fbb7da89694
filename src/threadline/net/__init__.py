"""HTTP as the agents and platforms need it: a client that checks addresses, and server-sent events."""
