"""The only room that holds SQL.

`mysql/`, `postgresql/`, `sqlite/`  what is asked of that database alone; the same names of files in each
`verbs/`            a file for each kind of row: the statements of all databases
`schema/`           the tables, their check and their upgrade
`columns/`          columns of the application: their types, the room that is left, tags beside them
`django/`           numbers and migrations on Django's own connection

`address.py`        from a URL or an engine to a dialect
`dialect.py`        what differs between databases; each folder answers it
`store.py`          one database: how a verb runs; what is known of it; claims, tickets, nodes, worker numbers, tags
`connection.py`     connections of our own, and one that a migration lends
`driver_errors.py`  from a driver's error to one of ours
`checks.py`         what the doctor asks; more in the `doctor_checks.py` of each folder
`caller.py`         a transaction of the application: numbers without gaps
"""
