"""The suite that tries to break the queue. `python -m tests.chaos` runs its scenarios.

A load of producers and consumers (`load/`) writes a history (`history`). Meanwhile nemeses (`nemeses/`) break things on
a stage of real processes (`stage`, `servers/`). Afterwards judges (`judges/`) check the history. A scenario
(`scenarios/`) says what is broken, on which servers, and what must hold all the same; `run` plays one.
"""
