"""The only room that holds SQL.

`store.py`          one database as the others use it: segments, tags; on `registry.py` (nodes, leases, failovers)
`connection.py`     engines and connections of our own, and how a verb runs on one
`verbs/`            a file for each kind of row: the statements
`dialect.py`        what differs between databases; `postgresql.py`, `mysql.py` and `sqlite.py` answer it
`address.py`        from a URL or an engine to a dialect
`driver_connection.py`  the same for claims and tickets, without SQLAlchemy's execution layer
`driver_errors.py`  from a driver's error to one of ours
`tables.py`, `schema.py`  the tables, their check and their upgrade
`caller.py`         statements in a transaction of the application: numbers without gaps
`doctor_queries/`   what the doctor asks
"""
