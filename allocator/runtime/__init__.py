"""Processes and threads: forks, the worker pool, waiting, re-entrancy."""
