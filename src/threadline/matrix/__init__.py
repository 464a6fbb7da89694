"""The Matrix bot: sync, rooms and spaces, replies by edits, encryption."""
