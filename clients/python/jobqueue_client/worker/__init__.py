"""The worker. What each part does, in the order in which a job meets them:

`worker` is the public face: options, handlers, signals; it starts the parts below and stops them in order. `poll` pops
jobs and `handlers` runs a handler for each inside its `middleware` (sync ones in threads), while `lease` touches the
leases. `outcome` turns what a handler returns or raises into a command; `outbox` keeps that command until it is
answered. Signals and the limits of a worker's life end the work through `stopping`. `report` logs, calls the hooks,
counts, and keeps a loop going when the package has a bug.
"""
