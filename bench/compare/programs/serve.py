"""`jobqueue`, of whatever version is imported."""

import importlib

try:
    cli = importlib.import_module("jobqueue.cli.main")
except ModuleNotFoundError:  # commits in which it was one module
    cli = importlib.import_module("jobqueue.cli")
cli.main(prog_name="jobqueue")
