"""One program per client, each run in a process of its own; `bare.py` describes their arguments."""
