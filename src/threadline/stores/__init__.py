"""Stores: where it is kept. Two of them, behind the one port."""
