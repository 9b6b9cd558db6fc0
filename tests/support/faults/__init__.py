"""What goes wrong: databases that forget, networks that cut, calls that are interrupted."""
