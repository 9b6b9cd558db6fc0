"""Ids over HTTP, for those who cannot link Python or may not reach the database. Needs the extra `server`.

A stranger's way in: `server` starts processes, `app` wires what one of them is made of, `routes` is the table of all
routes, `front` answers the hot ones, `problems` says which status an error has.
"""
