"""How the service runs as processes: the uvicorn server, worker processes and log output."""
