"""The process and its machine: forks, the thread pool, waiting, re-entrancy, mounts."""
