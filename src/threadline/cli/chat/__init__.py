"""`threadline chat`: chat with an agent in the terminal, on a local database or on a service."""
