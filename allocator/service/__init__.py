"""Ids over HTTP, for programs in other languages or without access to the database. Needs the extra `server`.

Start reading here: `server` starts it, `http_server` listens and embeds granian, `app` wires the parts,
`hot_path` answers the hot routes, `routes` has the table of all routes and their handlers, `dispatch` calls these, and
`error_responses` maps errors to HTTP statuses.
"""
