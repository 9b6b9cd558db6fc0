"""What a database can be asked about its own health, for the doctor."""
