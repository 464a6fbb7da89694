"""The store on one SQLite file, for everyone who starts, and for many who never need more."""
