"""`jobqueue check`: findings about the settings, Redis, a running service and its jobs. `jobqueue doctor` asks for
more, and writes everything to a file for a bug report.
"""
