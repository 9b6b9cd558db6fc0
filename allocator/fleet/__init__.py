"""Several databases as one: their use in rotation, and the commands that make and extend a fleet."""
