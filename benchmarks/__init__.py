"""Speed of the allocator compared with alternatives: `make bench`. Begin to read in `rounds`."""
