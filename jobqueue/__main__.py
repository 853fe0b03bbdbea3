"""`python -m jobqueue`: the command line."""

from jobqueue.cli.entry import main

main()
