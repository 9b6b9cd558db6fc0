"""What rows mean and what follows from them: failover, fleets, tokens. Pure."""
