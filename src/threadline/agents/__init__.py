"""Agents: who answers, and the tools they may use."""
