"""SQLite: all that is asked of it and no other database."""
