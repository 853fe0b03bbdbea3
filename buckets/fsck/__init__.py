"""The check of everything that is in Redis, while the service runs."""
