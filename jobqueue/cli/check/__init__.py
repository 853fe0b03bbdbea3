"""`jobqueue check`: findings about the settings, Redis, a running service and its jobs. `jobqueue doctor` asks for
more, and puts all of it into a file for a report of a bug.
"""
