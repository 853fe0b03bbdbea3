"""The way to Redis: from a URL to the server that has a key, and commands on one connection to each server."""
