"""The worker. What each part does, in the order in which a job meets them:

`worker` is the public face: options, handlers, signals. `lifecycle` starts the parts below and stops them in order.
`poll` pops jobs and `handlers` runs a handler for each inside its `middleware` (sync ones in `threads`), while `lease`
touches the leases. `outcome` turns what a handler returns or raises into a command; `outbox` keeps that command until
it is answered and `outbox_sender` sends it. `limits` and signals end the work through `stopping`. `report` logs, calls
the hooks and counts; `defects` keeps a loop going when the package has a bug.
"""
