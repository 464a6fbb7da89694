"""MCP servers whose tools, resources and prompts agents use."""
