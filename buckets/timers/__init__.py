"""The timers: which instance runs which timer, and the loop that moves due entries out of one bucket.

Instances sign a list of members; each instance derives the same assignment of timers from the list, takes the locks of
its own timers, and runs their loops. Correctness does not depend on this: a move is atomic by itself, so two timers on
one bucket do no harm.
"""
