"""The suite that tries to break the queue.

A load of producers and consumers writes a history (load.py, history.py); meanwhile nemeses break things (nemeses/), all
with real processes; a checker judges the history (checker.py). What is broken, on which servers, and what must hold all
the same is a scenario (scenarios.py). `python -m tests.chaos` runs them.
"""
