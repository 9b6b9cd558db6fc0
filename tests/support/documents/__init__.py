"""The documents, run as their readers would, and the reports of long runs."""
