"""Processes and threads that draw ids, and the account of what they drew."""
