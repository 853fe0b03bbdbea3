"""The tests; they mirror the code."""
