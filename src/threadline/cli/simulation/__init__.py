"""Messaging platforms that are not there, for whoever wants to see the channels work without an account."""
