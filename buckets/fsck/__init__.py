"""The check of everything in Redis, while the service runs, and its repair."""
