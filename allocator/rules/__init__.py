"""Rules on the rows of the database, without I/O: failover, fleets, tokens."""
