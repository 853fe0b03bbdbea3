"""The configuration of Redis in deploy/redis."""
