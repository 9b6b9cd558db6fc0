"""Ids in this process: segments in memory, batches of claims, meteors, snowflakes, ObjectIds."""
