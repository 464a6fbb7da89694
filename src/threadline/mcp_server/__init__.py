"""Threadline as an MCP server: threads as tools and resources, over any gateway."""
