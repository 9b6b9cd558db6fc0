"""The only room that knows SQLAlchemy and SQL.

tables     the metadata that Alembic compares with
dialect    the verbs; `postgresql`, `mysql` and `sqlite` hold what differs
address    a URL or an engine -> an engine of our own
failures   a driver's error -> one of ours
store      the verbs, run
schema     current, check, upgrade
"""
