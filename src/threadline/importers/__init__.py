"""Readers of other programs' conversations: files to histories that `threads.history_import` stores."""
