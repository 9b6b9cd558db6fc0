"""The only room that holds SQL.

`store.py`          one database: how a verb runs; what is known of it; claims, tickets, nodes, worker numbers, tags
`verbs/`            a file for each kind of row: the statements of all databases
`postgresql.py`     what that database does in its own way, its claim first; likewise `mysql.py` and `sqlite.py`
`dialect.py`        the page of what differs, which each of these answers
`driver_errors.py`  from a driver's error to one of ours
`address.py`        from a URL or an engine to a dialect
`connection.py`     connections of our own, and one that a migration lends
`fork_gate.py`      keeps forks out of SQLite's statements
`tables.py`         the tables; `schema.py` checks and upgrades them
`checks.py`         what the doctor asks
`columns.py`        columns of the application: their types, the room that is left, tags beside them
`caller.py`         a transaction of the application: numbers without gaps
`django/`           the same on Django's own connection
"""
