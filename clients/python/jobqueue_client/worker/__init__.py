"""The worker. What each part does, in the order in which a job meets them:

`worker` is the public face: options, handlers, signals. `lifecycle` starts the parts below and stops them in order.
`poll` pops jobs and `handlers` runs a handler for each (sync ones in `threads`), while `lease` touches the leases.
`outcome` turns what a handler returns or raises into a command; `outbox` keeps that command until it is answered and
`outbox_sender` sends it. `report` logs, calls the hook and counts; `defects` keeps a loop going when the package has a
bug.
"""

from jobqueue_client.worker.worker import Worker

__all__ = ["Worker"]
