"""Several databases as one: shards, their discovery, their growth, and the tags on all of them."""
