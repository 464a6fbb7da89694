"""Threadline keeps the conversations between people and AI agents."""
