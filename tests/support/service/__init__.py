"""The service as a process, its clients, and people at its console."""
