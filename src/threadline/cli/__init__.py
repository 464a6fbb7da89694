"""The terminal: `threadline`."""
