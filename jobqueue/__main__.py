"""`python -m jobqueue`: the command line."""

from jobqueue.cli.main import main

main(prog_name="jobqueue")
