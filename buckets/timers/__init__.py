"""The timers: which instance runs which, and the loop that moves what is due out of one bucket.

Instances sign a list of members; from it each derives the same assignment of timers, takes the locks of its own, and
runs their loops. None of this guards anything: a move is atomic by itself, so two timers on one bucket do no harm.
"""
