"""The only room that knows SQLAlchemy and SQL.

tables     the metadata that Alembic compares with
dialect    the verbs together; `postgresql`, `mysql` and `sqlite` hold what differs
    segments, batch, tickets, shards, nodes, tokens    the verbs of each noun, and in `common` what all of them need
foreign    the tables of other id servers, which are only read
address    a URL or an engine -> an engine of our own
failures   a driver's error -> one of ours
store      the verbs, run
opening    several databases that become a fleet
schema     current, check, upgrade
"""
