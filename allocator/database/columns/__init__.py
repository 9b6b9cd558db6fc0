"""Columns of the application: bound to tags and numbers, taken over, and how much room their types have."""
