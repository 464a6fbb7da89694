"""The HTTP service: server-owned threads for AI SDK clients and everyone else."""
