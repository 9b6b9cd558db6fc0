"""MySQL and MariaDB: all that is asked of them and no other database."""
