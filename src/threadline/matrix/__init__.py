"""The Matrix bot: rooms and spaces, commands, replies by edits, encryption."""
