"""The systems under comparison, one module each, and what their drivers share."""
