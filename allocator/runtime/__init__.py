"""Processes and threads: forks, the thread pool, waiting, re-entrancy."""
