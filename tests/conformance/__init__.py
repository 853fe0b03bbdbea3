"""One scenario and one set of worker tests for all clients, each run as a real process against a real service."""
