"""Schedules: when their occurrences are, what a definition says, and the use cases."""
