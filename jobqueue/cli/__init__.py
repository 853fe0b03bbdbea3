"""The command line, `jobqueue`."""
