"""Databases and fleets in memory."""
