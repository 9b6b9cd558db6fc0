"""What is done to the rows, a file for each kind of row: plain functions on a connection."""
