"""Optional integrations with web frameworks, ORMs and pytest."""
