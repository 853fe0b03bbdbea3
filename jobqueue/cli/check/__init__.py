"""`jobqueue check`: findings about the settings, Redis, a running service and its jobs."""
