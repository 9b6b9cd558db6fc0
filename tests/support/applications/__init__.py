"""What an application does with the library."""
