"""A service as the source of ids: the client over HTTP."""
