"""Clusters of database servers, and what writes to them."""
