"""What each client does in a process of its own; `bare.py` says how they are called."""
