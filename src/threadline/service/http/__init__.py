"""How HTTP requests are read and answered: bodies, headers, JSON responses, problems."""
