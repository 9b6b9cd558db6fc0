"""The web console, at `/` of the service: pages that only read."""
