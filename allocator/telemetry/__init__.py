"""The calls of a backend from outside: timed for the metrics of the service."""
