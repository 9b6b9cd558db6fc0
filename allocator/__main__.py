"""`python -m allocator`."""

from allocator.cli import main

main(prog_name="allocator")
