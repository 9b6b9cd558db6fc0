"""Django's own connection and settings: numbers in its transactions, counters of its tables, its database as a URL."""
