"""Administrators' operations on a tenant: tokens, users and the agents it defines."""
