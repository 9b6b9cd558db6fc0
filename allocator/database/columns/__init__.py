"""Columns of the application: how much room their types have, and the tags whose ids they hold."""
