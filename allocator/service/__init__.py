"""Ids over HTTP, for programs in other languages or without access to the database. Needs the extra `server`.

Start reading here: `server` starts processes, `app` wires one of them, `repeated_requests` answers those that come
again, `hot_path` the other ones of the hot routes, `routes` is the table of all routes, `dispatch` calls their
`handlers`, and `error_responses` maps errors to HTTP statuses.
"""
