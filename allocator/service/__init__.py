"""Ids over HTTP, for those who cannot link Python or may not reach the database. Needs the extra `server`.

A stranger's way in: `server` starts processes, `app` wires what one of them is made of, `hot_path` answers the hot
routes, `routes` is the table of all, `dispatch` leads to their `handlers`, `problems` says which status an error has.
"""
